"""What one worker moves to or from one peer for one request: piece by piece, within limits, none after a failure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Runs
from kvplan.runtime.errors import HandleError, PeerLostError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.gather import GatheredSpans, IndexScratch, gather
from kvplan.runtime.transfer.limits import AdmissionQueue
from kvplan.runtime.transfer.prepare import PreparedLink
from kvplan.runtime.transport.base import TransferHandle, Transport


@dataclass(slots=True, eq=False)
class Slice:
    """A part of what is moved. `handles` are those under way, None for one that failed when it was posted.

    `state` is waiting (for the limits), asked (for the peer's leave), posted or over.
    """

    mover: TransferExecutor
    number: int
    link: PreparedLink
    runs: Mapping[str, Runs]
    size: int
    state: str = "waiting"
    handles: list[TransferHandle | None] = field(default_factory=list)

    def settled(self) -> bool:
        """Whether a piece that was left can touch nothing any more: done, or its connection is gone."""
        self.handles = [handle for handle in self.handles if not over(self.link.peer, handle)]
        return not self.handles


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """What pieces are moved with: shared by all movers of a worker. `numbers` tell their pieces apart."""

    transport: Transport
    gate: AdmissionQueue[Slice]
    scratch: IndexScratch
    slice_bytes: int
    numbers: Iterator[int] = field(default_factory=itertools.count)


class TransferExecutor:
    """Bytes of one request between here and one peer. With `ask`, the peer is asked before a piece is posted.

    It is told by `spent` when a piece that it allowed is over, though the request may have ended before.
    What goes wrong is told to `fail`, whose owner calls `stop`: nothing is posted after that.
    `requests` and `spans` are predicted; `posted` is what the transport counted, None where it does not count.
    """

    def __init__(
        self,
        request: str,
        peer: str,
        means: ExecutorContext,
        fail: Callable[[Exception], None],
        ask: Callable[[int, int], None] | None = None,
        spent: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.request, self.peer = request, peer
        self.total = self.moved = self.requests = self.spans = 0
        self.posted: int | None = 0
        self.fed = False
        self._means, self._fail, self._ask, self._spent = means, fail, ask, spent
        self._pieces: dict[int, Slice] = {}

    @property
    def done(self) -> bool:
        """Whether all that will be fed has been moved."""
        return self.fed and not self._pieces

    @property
    def under_way(self) -> bool:
        return any(piece.state == "posted" for piece in self._pieces.values())

    def feed(self, link: PreparedLink, runs: Mapping[str, Runs]) -> None:
        """Move these runs by pair, too. Raises LimitError."""
        for part in slices.cut(link, runs, self._means.slice_bytes):
            piece = Slice(self, next(self._means.numbers), link, part, slices.size(link, part))
            self.total += piece.size
            self._pieces[piece.number] = piece
            self._means.gate.want(self.peer, self.request, piece.size, piece)

    def admitted(self, piece: Slice) -> None:
        """The limits allow a piece."""
        if self._pieces.get(piece.number) is not piece:
            self._means.gate.done(piece)
        elif self._ask is None:
            self._post(piece)
        else:
            piece.state = "asked"
            self._try(self._ask, piece.number, piece.size)

    def granted(self, number: int) -> bool:
        """The peer allows a piece; False where it was not asked. One that is not there (any more) is spent at once."""
        piece = self._pieces.get(number)
        if piece is None:
            self._spent(number)
        if piece is None or piece.state != "asked":
            return False
        self._post(piece)
        return True

    def step(self) -> None:
        """Follow what is posted."""
        for piece in list(self._pieces.values()):
            if piece.state == "posted" and piece.number in self._pieces and self._try(self._over, piece):
                self._end(piece)

    def stop(self) -> list[Slice]:
        """Give up: nothing more is posted. Returns the pieces that are still under way."""
        left = [piece for piece in self._pieces.values() if piece.handles]
        self._means.gate.drop_request(self.request, self.peer)
        for piece in self._pieces.values():
            if not piece.handles:
                self._close(piece)
        self._pieces.clear()
        return left

    def buried(self, piece: Slice) -> None:
        """A piece that was left is settled: its bytes are no longer in flight."""
        self._close(piece)

    def _close(self, piece: Slice) -> None:
        self._means.gate.done(piece)
        if piece.state == "posted":
            self._spent(piece.number)

    def _try(self, call: Callable[..., Any], *arguments: Any) -> bool:
        """Whether `call` says so; an error is told to the owner."""
        try:
            return bool(call(*arguments))
        except Exception as error:
            self._fail(error)
            return False

    def _post(self, piece: Slice) -> None:
        piece.state = "posted"
        self._try(self._gathered, piece)

    def _gathered(self, piece: Slice) -> None:
        load = gather(piece.link, piece.runs, self._means.scratch)
        self.requests += load.requests
        self.spans += load.spans
        try:
            self._issue(piece, load)
        except Exception as error:
            if begun_nothing(error):
                piece.handles = [handle for handle in piece.handles if handle is not None]
            raise

    def _issue(self, piece: Slice, load: GatheredSpans) -> None:
        # None stands for a transfer that the transport may have begun before it raised.
        link, transport = piece.link, self._means.transport
        for bank, local, remote in load.banks:
            piece.handles.append(None)
            piece.handles[-1] = transport.post(link.op, link.peer, bank.local, local, bank.remote, remote)
        if len(load.local_spans):
            piece.handles.append(None)
            piece.handles[-1] = transport.post_spans(
                link.op, link.peer, load.local_spans, link.local.mem_type, load.remote_spans, link.remote.mem_type
            )

    def _over(self, piece: Slice) -> bool:
        for handle in list(piece.handles):
            if handle is None or not self._poll(piece, handle):
                return False
            count = handle.requests()
            self.posted = None if count is None or self.posted is None else self.posted + count
            piece.handles.remove(handle)
            handle.release()
        return True

    def _poll(self, piece: Slice, handle: TransferHandle) -> bool:
        try:
            return handle.poll()
        except PeerLostError:
            piece.handles.remove(handle)
            released(piece.link.peer, handle)
            raise

    def _end(self, piece: Slice) -> None:
        del self._pieces[piece.number]
        self.moved += piece.size
        self._close(piece)


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
    released(peer, handle)
    return True


def released(peer: str, handle: TransferHandle) -> None:
    """Give a handle back that touches nothing any more; what the transport says against it is logged."""
    try:
        handle.release()
    except Exception as error:
        logs.event(logs.WARNING, "release failed", peer=peer, error=error)
