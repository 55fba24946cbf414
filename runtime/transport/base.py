"""What a transport does: register memory, meet peers, read and write by prepared index or by address; its handles.

Lists of descriptors are int64 arrays: strided rows (address, bytes, device, stride, count), or explicit rows
(address, bytes, device). Every call may raise TransportError or PeerLostError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import auto
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Ints
from kvplan.runtime.errors import AddressError, HandleError, NotBegunError, PeerLostError, TransportError
from kvplan.runtime.machine import TextEnum
from kvplan.runtime.memory.arrays import TOP
from kvplan.runtime.ops import logs

Index = npt.NDArray[np.int32]
# READ moves bytes from the peer to here, WRITE from here to the peer.
Op = Literal["READ", "WRITE"]


class PreparedList(Protocol):
    """A list of descriptors, prepared once and used by index. It is `released` when its peer is met again, too."""

    released: bool

    def release(self) -> None: ...


class TransferHandle(Protocol):
    """One posted read or write. It has one owner, is released once, and never while it may still move bytes."""

    @property
    def failed(self) -> bool:
        """Whether it failed so that nothing more can be learned of it."""

    def poll(self) -> bool:
        """Whether it is done. Raises PeerLostError where its connection is lost and no byte can move any more,

        another TransportError where it failed and bytes may still move.
        """

    def descriptors(self) -> int | None:
        """Descriptors posted, None where the transport does not count them. Only when done."""

    def release(self) -> None:
        """Give it back. Raises HandleError while it is in progress."""


class Transport(Protocol):
    """One agent of one process. All of it may be called from several threads."""

    name: str
    # Those that were met, and not removed.
    peers: set[str]
    # What this agent's memory is read over without its help; agents that share one read each other (`fabrics`).
    fabrics: frozenset[str]
    # Seconds of `progress` for which bytes of a connection that broke may still land here: what was sent before lies in
    # a network, and in sockets.
    linger_s: float

    def register(self, regions: Ints, mem_type: str) -> None:
        """Register rows (address, bytes, device), beside those registered before; again after `deregister`.

        Raises RegisterError where they are on another device.
        """

    def deregister(self) -> None:
        """Give all registrations and prepared lists back. Raises HandleError while bytes may still move.

        The metadata is another one afterwards: peers forget this agent, and meet it again once it has registered.
        """

    def metadata(self) -> bytes:
        """What a peer needs to read from here or write to here."""

    def add_peer(self, metadata: bytes) -> str:
        """Meet a peer; returns its name. Meeting it again changes nothing, unless it is `broken`: then it is met again.

        Lists that were prepared for it are released by that. Raises NotBegunError while transfers with it
        may be in progress over the earlier connection.
        """

    def remove_peer(self, peer: str) -> None:
        """Forget a peer that nothing is in progress with. This does not stop transfers: their bytes may still move.

        Lists that were prepared for it are no good any more. Its connection may stay, for when it is met again.
        """

    def lost(self, peer: str) -> bool:
        """Whether the connection to a peer is known to be broken. False of one that is only slow, or frozen.

        Never blocks. A peer whose process is dead may be found lost a few calls, with `progress` between, later.
        """

    def broken(self, peer: str) -> bool:
        """What `lost` would say, by what is known: nobody is asked."""

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> PreparedList:
        """Prepare strided rows of a peer's memory, or of this process's with None."""

    def post(
        self, op: Op, peer: str, local: PreparedList, local_at: Index, remote: PreparedList, remote_at: Index
    ) -> TransferHandle:
        """Post a transfer of prepared descriptors by index: element n of either side is one transfer of bytes."""

    def post_spans(
        self, op: Op, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str
    ) -> TransferHandle:
        """Post a transfer of explicit rows."""

    def progress(self) -> int:
        """Let the transport make progress: both sides must call it. Returns how many stray messages were dropped."""

    def close(self) -> None:
        """End everything: nothing can write into registered memory any more."""


def is_lost(transport: Transport, peer: str) -> bool:
    """Whether a transport has lost a peer; one that cannot tell has not. Never raises."""
    try:
        return transport.lost(peer)
    except KvplanError:
        return False


def reach(transport: Transport, peer: str, metadata: bytes) -> None:
    """Have a peer met again whose connection is known to be broken. Raises NotBegunError as `add_peer`.

    One that cannot be met is found out by what is asked of it next.
    """
    if not transport.broken(peer):
        return
    try:
        transport.add_peer(metadata)
    except NotBegunError:
        raise
    except TransportError as error:
        logs.event(logs.INFO, "peer not met again", peer=peer, error=error)


def check_spans(spans: Ints) -> None:
    """Raises AddressError where a row (address, bytes, ...) is empty, leaves the address space, or is not int64.

    NIXL accepts what wraps around 2^64, and dies of it later.
    """
    if spans.dtype != np.int64:
        raise AddressError(f"descriptors are int64, not {spans.dtype}: a cast would change addresses in silence")
    address, size = spans[:, 0], spans[:, 1]
    bad = (address < 1) | (size < 1) | (size > TOP - 1 - np.maximum(address, 0))
    _refuse(spans, bad)


def check_rows(rows: Ints) -> None:
    """Raises AddressError where a strided row (address, bytes, device, stride, count) is empty, or wraps."""
    check_spans(rows)
    device, stride, count = rows[:, 2], rows[:, 3], rows[:, 4]
    room = TOP - 1 - rows[:, 0] - rows[:, 1]
    _refuse(rows, (device < 0) | (stride < 1) | (count < 1) | (count - 1 > room // np.maximum(stride, 1)))


def _refuse(rows: Ints, bad: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    if bad.any():
        raise AddressError(f"descriptor {rows[bad.argmax()].tolist()} is empty, or leaves the address space")


class HandleState(TextEnum):
    """What a transfer is. One that is cut moves no byte any more, as its agent has ended."""

    POSTED = auto()
    DONE = auto()
    FAILED = auto()
    CUT = auto()
    RELEASED = auto()


class PostedTransfer(ABC):
    """One posted transfer; its transport is asked of it while it is posted, and never again."""

    def __init__(self, peer: str) -> None:
        self.peer, self.state = peer, HandleState.POSTED

    @property
    def open(self) -> bool:
        """Whether bytes may still move, as far as is known."""
        return self.state in (HandleState.POSTED, HandleState.FAILED)

    @property
    def failed(self) -> bool:
        return self.state is HandleState.FAILED

    def poll(self) -> bool:
        if self.state in (HandleState.FAILED, HandleState.RELEASED):
            raise HandleError(f"a transfer that is {self.state} cannot be polled")
        if self.state is HandleState.CUT:
            raise PeerLostError(f"the transfer with {self.peer} was cut: this side gave its memory back")
        if self.state is HandleState.POSTED:
            self._follow()
        return self.state is HandleState.DONE

    @abstractmethod
    def descriptors(self) -> int | None:
        """As the protocol says."""

    def release(self) -> None:
        """As the protocol says. Once more does nothing."""
        if self.state is HandleState.RELEASED:
            return
        if self.state is HandleState.POSTED and self._live():
            raise HandleError("a transfer that may still move bytes cannot be released: wait, or close the transport")
        self.state = HandleState.RELEASED
        self._give_back()

    def cut(self) -> None:
        """The agent goes: nothing of it may be kept alive by this handle."""
        if self.open:
            self.state = HandleState.CUT
        self._give_back()

    @abstractmethod
    def _follow(self) -> None:
        """Ask the transport how far it is. If that raises, the state is FAILED."""

    @abstractmethod
    def _live(self) -> bool:
        """Whether its agent is there, so that bytes may move."""

    @abstractmethod
    def _give_back(self) -> None:
        """Nothing moves any more: release what the transport keeps of it."""
