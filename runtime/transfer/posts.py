"""Posts: what was gathered handed over to the transport, when a post can touch nothing any more, and who shares it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kvplan.plan.errors import KvplanError
from kvplan.runtime.errors import HandleError, PeerLostError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transfer.gather import GatheredSpans
from kvplan.runtime.transfer.prepare import PreparedLink
from kvplan.runtime.transport.base import TransferHandle, Transport


def post_load(
    transport: Transport, link: PreparedLink, load: GatheredSpans, handles: list[TransferHandle | None]
) -> None:
    """Post what was gathered; `handles` are told of each before it can fail.

    None stands for a transfer that the transport may have begun before it raised.
    """
    for bank, local, remote in load.banks:
        handles.append(None)
        handles[-1] = transport.post(link.op, link.peer, bank.local, local, bank.remote, remote)
    for batch in load.batches:
        rows = slice(batch.first, batch.end)
        here, there = (load.local_spans[rows], batch.local_type), (load.remote_spans[rows], batch.remote_type)
        handles.append(None)
        handles[-1] = transport.post_spans(link.op, link.peer, *here, *there)


def begun_nothing(error: Exception) -> bool:
    """Whether a transfer that raised this when posted cannot be in progress: what is not known of may be."""
    if isinstance(error, PeerLostError | HandleError):
        return True
    return isinstance(error, KvplanError) and not isinstance(error, TransportError)


def over(peer: str, handle: TransferHandle | None) -> bool:
    """Whether a transfer can touch nothing any more: it is done, or its connection is lost.

    A peer that is removed from the transport proves nothing: bytes of NIXL over TCP were seen to arrive later.
    """
    if handle is None:
        return False
    try:
        if not handle.poll():
            return False
    except Exception as error:
        logs.event(logs.DEBUG, "transfer failed", peer=peer, error=error)
        if not isinstance(error, PeerLostError):
            return False
    release(peer, handle)
    return True


def ended(peer: str, handle: TransferHandle | None) -> bool:
    """Whether a read is over now that its peer is lost: one that failed in another way before is, too."""
    if handle is None:
        return True
    if not handle.failed:
        return False
    release(peer, handle)
    return True


def release(peer: str, handle: TransferHandle) -> None:
    """Give a handle back that touches nothing any more; what the transport says against it is logged."""
    try:
        handle.release()
    except Exception as error:
        logs.event(logs.WARNING, "release failed", peer=peer, error=error)


@dataclass(slots=True, eq=False)
class SharedTransfer:
    """A transfer of `holders` slices, given back when the last one frees. `error` is what it last failed with."""

    handle: TransferHandle
    holders: int
    error: Exception | None = None


class TransferShare:
    """What one slice holds of a transfer: what that failed with it is told once, even if another one asked first.

    Then the transport is asked again, which may find that no byte moves any more.
    """

    def __init__(self, transfer: SharedTransfer) -> None:
        self._transfer, self._raised = transfer, False

    @property
    def failed(self) -> bool:
        return self._transfer.handle.failed

    def poll(self) -> bool:
        error = self._transfer.error
        # The transport is not asked about a lost peer.
        if error is not None and (not self._raised or isinstance(error, PeerLostError)):
            self._raised = True
            raise error
        try:
            return self._transfer.handle.poll()
        except Exception as error:
            self._transfer.error, self._raised = error, True
            raise

    def descriptors(self) -> int | None:
        """As the protocol says: those of all slices."""
        return self._transfer.handle.descriptors()

    def release(self) -> None:
        """Its slice waits for the transfer no more."""
        self._transfer.holders -= 1
        if not self._transfer.holders:
            self._transfer.handle.release()


def shares(handles: Sequence[TransferHandle | None], holders: int) -> list[list[TransferHandle | None]]:
    """Handles as each of so many slices holds them: of one alone they are its own."""
    if holders == 1:
        return [list(handles)]
    transfers = [None if handle is None else SharedTransfer(handle, holders) for handle in handles]
    return [[None if one is None else TransferShare(one) for one in transfers] for _ in range(holders)]


@dataclass(frozen=True, slots=True)
class TransferPart:
    """What of a transfer is one slice's: bytes [first, end) of `bytes`.

    Its descriptors count for its slices by their bytes: neighbours of two slices may be one descriptor.
    """

    first: int
    end: int
    bytes: int

    def of(self, count: int) -> int:
        """So many of `count`; those of all parts are `count` together."""
        return count * self.end // self.bytes - count * self.first // self.bytes


WHOLE = TransferPart(0, 1, 1)


def parts(sizes: Sequence[int]) -> list[TransferPart]:
    """The parts of slices of so many bytes each, one or more."""
    if len(sizes) == 1:
        return [WHOLE]
    edges = [0, *accumulate(sizes)]
    return [TransferPart(first, end, edges[-1]) for first, end in pairwise(edges)]
