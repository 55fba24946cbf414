"""Posts: hand gathered spans to the transport, find posts that can touch nothing any more, and share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.plan.errors import KvplanError
from kvplan.runtime.errors import HandleError, PeerLostError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transfer.gather import GatheredSpans
from kvplan.runtime.transfer.prepared import PreparedLink
from kvplan.runtime.transport.base import TransferHandle, Transport


def post_load(
    transport: Transport, link: PreparedLink, load: GatheredSpans, handles: list[TransferHandle | None]
) -> None:
    """Post gathered spans, and add their transfers to `handles`.

    If a post raises, its entry is None, because the transport may have begun it.
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
    """Return whether a transfer whose post raised this is surely not in progress. Unknown errors do not prove that."""
    if isinstance(error, PeerLostError | HandleError):
        return True
    return isinstance(error, KvplanError) and not isinstance(error, TransportError)


def over(peer: str, handle: TransferHandle | None) -> bool:
    """Return whether a transfer can touch nothing any more: it is done, or its connection is lost.

    Removing the peer from the transport proves nothing: bytes of NIXL over TCP were seen to arrive later.
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
    """Return whether a read of a lost peer is over: also one that failed in another way before."""
    if handle is None:
        return True
    if not handle.failed:
        return False
    release(peer, handle)
    return True


def release(peer: str, handle: TransferHandle) -> None:
    """Release a handle that touches nothing any more. An error of the transport is logged."""
    try:
        handle.release()
    except Exception as error:
        logs.event(logs.WARNING, "release failed", peer=peer, error=error)


@dataclass(slots=True, eq=False)
class SharedTransfer:
    """A transfer of `holders` slices, released when the last one releases it. `error` is its last error."""

    handle: TransferHandle
    holders: int
    error: Exception | None = None


class TransferShare:
    """One slice's share of a transfer. It raises an error of the transfer once, even if another share met it first.

    Later polls ask the transport again, which may find that no byte moves any more. Descriptors count for the `first`.
    """

    def __init__(self, transfer: SharedTransfer, first: bool) -> None:
        self._transfer, self._first, self._raised = transfer, first, False

    @property
    def failed(self) -> bool:
        return self._transfer.handle.failed

    def poll(self) -> bool:
        error = self._transfer.error
        # Do not poll the transport again after its peer is lost.
        if error is not None and (not self._raised or isinstance(error, PeerLostError)):
            self._raised = True
            raise error
        try:
            return self._transfer.handle.poll()
        except Exception as error:
            self._transfer.error, self._raised = error, True
            raise

    def descriptors(self) -> int | None:
        count = self._transfer.handle.descriptors()
        return count if self._first or count is None else 0

    def release(self) -> None:
        """Release the share, and the transfer with the last one."""
        self._transfer.holders -= 1
        if not self._transfer.holders:
            self._transfer.handle.release()


def shares(handles: Sequence[TransferHandle | None], holders: int) -> list[list[TransferHandle | None]]:
    """Return for each of so many slices its handles: shares of them, or the handles themselves for a single slice."""
    if holders == 1:
        return [list(handles)]
    transfers = [None if handle is None else SharedTransfer(handle, holders) for handle in handles]
    return [
        [None if one is None else TransferShare(one, number == 0) for one in transfers] for number in range(holders)
    ]
