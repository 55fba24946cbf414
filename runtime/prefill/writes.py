"""What a prefill worker writes: the requests that decode workers want, as far as they are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvplan.plan import request as requests
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan, Runs
from kvplan.runtime.control.messages import Failed, Stopped, Want, Wrote
from kvplan.runtime.control.wire import unpack
from kvplan.runtime.errors import LeaseError, TransferError, cause_text
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.prefill.clients import DecodeClient
from kvplan.runtime.prefill.lease import Leases
from kvplan.runtime.prefill.source import OfferedChunk, SourceRequest
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover
from kvplan.runtime.transfer.demand import demand
from kvplan.runtime.transfer.executor import ExecutorContext, Slice, TransferExecutor

Send = Callable[[DecodeClient, object], None]


@dataclass(slots=True, eq=False)
class RequestWrite:
    """One request on its way to one decode worker. `fed` chunks of the stock were handed to the mover.

    `left` is the guest by which the decode worker gave it up: it is told when the last of `pieces` is over.
    """

    guest: DecodeClient
    request: Request
    stock: SourceRequest
    mover: TransferExecutor
    cover: ChunkCover
    fed: int = 0
    ended: bool = False
    left: DecodeClient | None = None
    pieces: list[Slice] = field(default_factory=list)


class RequestWrites:
    """All of one prefill worker. What is being written is pinned: it is not released, though its lease may end."""

    def __init__(self, pool: Pool, means: ExecutorContext, counters: Counters, send: Send, leases: Leases) -> None:
        self._pool, self._means, self._counters, self._send, self._leases = pool, means, counters, send, leases
        self._all: dict[tuple[DecodeClient, str], RequestWrite] = {}

    def __len__(self) -> int:
        return len(self._all)

    def want(self, guest: DecodeClient, asked: Want, stock: SourceRequest) -> None:
        """Begin to write a request. Raises BadRequestError where it does not fit, or is wanted already."""
        if guest.links is None:
            raise BadRequestError(f"request {asked.request}: this pair pulls: connect with mode push")
        if (guest, asked.request) in self._all:
            raise BadRequestError(f"request {asked.request} is being written: wait until that has ended")
        request = self._checked(guest, asked, stock)
        push: RequestWrite

        def fail(error: Exception) -> None:
            self._broken(push, error)

        mover = TransferExecutor(asked.request, guest.key, self._means, fail)
        push = RequestWrite(guest, request, stock, mover, ChunkCover(guest.plan, request, self._pool.worker))
        self._leases.pin(asked.request)
        self._all[guest, asked.request] = push

    def leave(self, guest: DecodeClient, request: str) -> None:
        """The decode worker gives a request up: it is told when nothing is written any more, whoever asked for it."""
        mine = [one for one in self._all.values() if (one.guest.claimant, one.request.id) == (guest.claimant, request)]
        if not mine:
            self._send(guest, Stopped(request))
        for push in mine:
            push.left = guest
            self._stop(push)

    def drop(self, guest: DecodeClient) -> None:
        """A decode worker is gone: nothing more is posted to it."""
        for push in [one for (who, _), one in self._all.items() if who is guest]:
            self._stop(push)

    def end(self, request: str, code: str, why: str) -> None:
        """A request is not there any more: those that want it are told."""
        for push in [one for (_, name), one in self._all.items() if name == request and not one.ended]:
            self._fail(push, code, why)

    def busy(self) -> set[str]:
        """The peers that something is under way to."""
        return {push.guest.peer for push in self._all.values() if push.pieces or push.mover.under_way}

    def step(self) -> None:
        """Hand over what is there, follow what is posted, tell who has everything."""
        for push in list(self._all.values()):
            if not push.ended:
                self._feed(push)
                push.mover.step()
            if not push.ended and push.mover.done:
                self._finish(push)
            if push.ended:
                self._bury(push)

    def _feed(self, push: RequestWrite) -> None:
        try:
            if push.stock.tokens is None and push.stock.whole and not push.fed:
                self._feed_whole(push)
            while push.fed < push.stock.ready:
                self._feed_chunk(push, push.stock.chunks[push.fed])
        except Exception as error:
            self._broken(push, error)

    def _feed_whole(self, push: RequestWrite) -> None:
        plan, guest = push.guest.plan, push.guest
        runs = demand(plan, guest.claimant.worker, push.request).of(self._shard(plan))
        self._move(push, None, runs)
        push.fed, push.mover.fed = 1, True

    def _feed_chunk(self, push: RequestWrite, offered: OfferedChunk) -> None:
        plan, layers = push.guest.plan, None if offered.layers is None else frozenset(offered.layers)
        one = Chunk(offered.tokens, offered.last, layers, offered.tables)
        chunk = chunks.received(plan, push.request, one, self._pool.blocks, push.cover)
        push.fed += 1
        if chunk is None:
            return
        wanted = chunks.part(plan, push.guest.claimant.worker, push.request, chunk, self._pool.worker)
        self._move(push, chunk.layers, wanted.of(self._shard(plan)))
        push.mover.fed = chunk.last

    def _move(self, push: RequestWrite, layers: frozenset[int] | None, runs: Mapping[str, Runs]) -> None:
        if runs and push.guest.links is not None:
            push.mover.feed(push.guest.links.of(layers), runs)

    def _shard(self, plan: Plan) -> int:
        return plan.prefill.workers[self._pool.worker].shard

    def _finish(self, push: RequestWrite) -> None:
        name, hold = push.request.id, push.stock.hold
        if not self._leases.lasts(name, hold):
            self._fail(push, LeaseError.code, f"its lease ran out while hold {hold} was written")
            return
        push.ended = True
        self._counters.add("bytes", push.mover.moved, direction="write")
        self._counters.add("posted", push.mover.requests)
        self._counters.add("spans", push.mover.spans)
        self._send(push.guest, Wrote(name, hold, push.mover.moved))

    def _fail(self, push: RequestWrite, code: str, why: str) -> None:
        self._stop(push)
        self._send(push.guest, Failed(push.request.id, code, why))

    def _broken(self, push: RequestWrite, cause: Exception) -> None:
        text = cause_text(cause)
        code = cause.code if isinstance(cause, KvplanError) else TransferError.code
        logs.event(logs.WARNING, "push failed", request=push.request.id, guest=push.guest.key, error=text)
        if not push.ended:
            self._counters.add("failures", reason=code)
            self._fail(push, code, text)

    def _stop(self, push: RequestWrite) -> None:
        if not push.ended:
            push.ended = True
            push.pieces += push.mover.stop()

    def _bury(self, push: RequestWrite) -> None:
        """Once nothing is written any more, forget a push, and say so to the decode worker that left it."""
        for piece in [piece for piece in push.pieces if piece.settled()]:
            push.pieces.remove(piece)
            piece.mover.buried(piece)
        if not push.pieces:
            del self._all[push.guest, push.request.id]
            self._leases.unpin(push.request.id)
            if push.left is not None and not self._leaves(push):
                self._send(push.left, Stopped(push.request.id))

    def _leaves(self, push: RequestWrite) -> bool:
        """Whether more of what was given up with a push is still being written."""
        return any(one.left is push.left and one.request.id == push.request.id for one in self._all.values())

    def _checked(self, guest: DecodeClient, asked: Want, stock: SourceRequest) -> Request:
        plan = guest.plan
        tables = {} if stock.tokens is not None else stock.tables or unpack(asked.prefill)
        request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
        if stock.tokens is not None and not (stock.tokens[0] <= asked.tokens[0] and stock.tokens[1] == asked.tokens[1]):
            raise BadRequestError(f"request {asked.request} was opened for {stock.tokens}, wanted are {asked.tokens}")
        assert guest.decode is not None
        sizes = shape.logical_blocks(guest.decode, plan.decode, guest.claimant.worker)
        return requests.check(plan, request, self._pool.blocks, sizes, fed=stock.tokens is not None)
