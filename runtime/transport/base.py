"""The interface of a transport: register memory, meet peers, read and write by prepared index or by address; handles.

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
    """A list of descriptors, prepared once and used by index. Meeting its peer again also makes it `released`."""

    released: bool

    def release(self) -> None: ...


class TransferHandle(Protocol):
    """One posted read or write. It has one owner, is released once, and never while it may still move bytes."""

    @property
    def failed(self) -> bool:
        """Whether the transfer failed and `poll` can no longer find out more about it."""

    def poll(self) -> bool:
        """Return whether the transfer is done.

        Raises PeerLostError if the connection is lost and no byte can move any more, and another TransportError if it
        failed and bytes may still move.
        """

    def descriptors(self) -> int | None:
        """Return the number of descriptors posted, None if it is not counted. Only for a transfer that is done."""

    def release(self) -> None:
        """Release the handle. Raises HandleError while the transfer is in progress."""


class Transport(Protocol):
    """One agent of one process. Several threads may call it."""

    name: str
    # Names of the peers that were met and not removed.
    peers: set[str]
    # The fabrics over which peers read this agent's memory without its help. Agents that share one read each other.
    fabrics: frozenset[str]
    # Seconds of `progress` for which bytes of a broken connection may still arrive: bytes sent before are still in the
    # network and in sockets.
    linger_s: float

    def register(self, regions: Ints, mem_type: str) -> None:
        """Register rows (address, bytes, device) in addition to earlier ones, also after `deregister`.

        Raises RegisterError if they are on another device.
        """

    def deregister(self) -> None:
        """Release all registrations and prepared lists.

        The metadata differs afterwards: peers must remove this agent, and meet it again once it has registered.
        """

    def metadata(self) -> bytes:
        """Return the bytes that a peer needs to read from or write to the memory registered so far."""

    def add_peer(self, metadata: bytes) -> str:
        """Meet a peer and return its name. A second call for it does nothing, unless it is `broken`.

        A broken peer is connected again, and lists that were prepared for it are released. Raises NotBegunError while
        transfers over the broken connection may still be in progress.
        """

    def remove_peer(self, peer: str) -> None:
        """Remove a peer that no transfer is in progress with. This stops no transfers: their bytes may still move.

        Lists that were prepared for it become invalid. Its connection may stay open for the next `add_peer`.
        """

    def lost(self, peer: str) -> bool:
        """Return whether the connection to a peer is known to be broken. A slow or frozen peer is not lost.

        Never blocks. If a peer's process has died, it may take a few calls, with `progress` between them, to notice.
        """

    def broken(self, peer: str) -> bool:
        """Return whether earlier calls have found the connection to a peer broken. Sends nothing."""

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> PreparedList:
        """Prepare strided rows of a peer's memory, or of this process's memory if `peer` is None."""

    def post(
        self, op: Op, peer: str, local: PreparedList, local_at: Index, remote: PreparedList, remote_at: Index
    ) -> TransferHandle:
        """Post a transfer of prepared descriptors. Element n of `local_at` pairs with element n of `remote_at`."""

    def post_spans(
        self, op: Op, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str
    ) -> TransferHandle:
        """Post a transfer of explicit rows."""

    def progress(self) -> int:
        """Let the transport make progress; both sides must call it. Return how many stray messages were dropped."""

    def close(self) -> None:
        """End everything: afterwards no transfer can write into registered memory."""


def is_lost(transport: Transport, peer: str) -> bool:
    """Return whether a transport has lost a peer, False if the transport raises. Raises no error of kvplan."""
    try:
        return transport.lost(peer)
    except KvplanError:
        return False


def reach(transport: Transport, peer: str, metadata: bytes) -> None:
    """Meet a peer again if its connection is known to be broken. Raises NotBegunError as `add_peer`.

    If the peer cannot be met, the next transfer with it fails.
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
    """Raises AddressError if a row (address, bytes, ...) is empty, leaves the address space, or is not int64.

    NIXL accepts rows that wrap around 2^64, and crashes later.
    """
    if spans.dtype != np.int64:
        raise AddressError(f"descriptors are int64, not {spans.dtype}: a cast would change addresses in silence")
    address, size = spans[:, 0], spans[:, 1]
    bad = (address < 1) | (size < 1) | (size > TOP - 1 - np.maximum(address, 0))
    _refuse(spans, bad)


def check_rows(rows: Ints) -> None:
    """Raises AddressError if a strided row (address, bytes, device, stride, count) is empty or wraps."""
    check_spans(rows)
    device, stride, count = rows[:, 2], rows[:, 3], rows[:, 4]
    room = TOP - 1 - rows[:, 0] - rows[:, 1]
    _refuse(rows, (device < 0) | (stride < 1) | (count < 1) | (count - 1 > room // np.maximum(stride, 1)))


def _refuse(rows: Ints, bad: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    if bad.any():
        raise AddressError(f"descriptor {rows[bad.argmax()].tolist()} is empty, or leaves the address space")


class HandleState(TextEnum):
    """The state of a transfer. A CUT one moves no more bytes, because its agent has ended."""

    POSTED = auto()
    DONE = auto()
    FAILED = auto()
    CUT = auto()
    RELEASED = auto()


class PostedTransfer(ABC):
    """One posted transfer. It polls its transport only while its state is POSTED."""

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
        """See `TransferHandle.descriptors`."""

    def release(self) -> None:
        """See `TransferHandle.release`. A second call does nothing."""
        if self.state is HandleState.RELEASED:
            return
        if self.state is HandleState.POSTED and self._live():
            raise HandleError("a transfer that may still move bytes cannot be released: wait, or close the transport")
        self.state = HandleState.RELEASED
        self._give_back()

    def cut(self) -> None:
        """Release all objects of the agent, because it ends."""
        if self.open:
            self.state = HandleState.CUT
        self._give_back()

    @abstractmethod
    def _follow(self) -> None:
        """Set the state by asking the transport. If that raises, the state is FAILED."""

    @abstractmethod
    def _live(self) -> bool:
        """Whether the agent still exists, so that bytes may move."""

    @abstractmethod
    def _give_back(self) -> None:
        """Release the transport's objects for this transfer. No bytes move any more."""
