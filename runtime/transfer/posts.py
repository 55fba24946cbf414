"""Posts: what was gathered handed over to the transport, and when a post can touch nothing any more."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError
from kvplan.runtime.errors import HandleError, PeerLostError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transfer.gather import GatheredSpans
from kvplan.runtime.transfer.prepare import PreparedLink
from kvplan.runtime.transport.base import TransferHandle, Transport


def hand_over(
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
    """Whether a transfer that raised this when posted cannot be under way: what is not known of may be."""
    if isinstance(error, PeerLostError | HandleError):
        return True
    return isinstance(error, KvplanError) and not isinstance(error, TransportError)


def over(peer: str, handle: TransferHandle | None) -> bool:
    """Whether a transfer can touch nothing any more: it is done, or its connection is gone.

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
