"""Request writes, where a pair pushes: what decode workers want written, as far as it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan, Runs
from kvplan.runtime.control.messages import Failed, Stopped, WriteRequest, Written, unpack
from kvplan.runtime.errors import LeaseError, PeerLostError, TransferError, cause_text
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.prefill.clients import DecodeClient, PushTarget, Send
from kvplan.runtime.prefill.lease import Leases
from kvplan.runtime.prefill.source import OfferedChunk, SourceRequest
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import ChunkCover
from kvplan.runtime.transfer.executor import ExecutorContext, Slice, TransferExecutor
from kvplan.runtime.transfer.posts import over
from kvplan.runtime.transport.base import TransferHandle

# Requests that are remembered of which a write ended with its connection.
MOST_LOST = 1 << 16


class WritePhase(IntEnum):
    """What a write is: under way; ended, with posts that may still write; or settled, when nothing does."""

    WRITING = auto()
    ENDED = auto()
    SETTLED = auto()


class WriteEvent(Enum):
    """What happens to a write."""

    WRITTEN = auto()
    # It failed, its decode worker gave it up or is gone, or the pin is over.
    STOPPED = auto()
    SETTLED = auto()


WRITE = StateMachine(
    "a write",
    {
        (WritePhase.WRITING, WriteEvent.WRITTEN): WritePhase.ENDED,
        (WritePhase.WRITING, WriteEvent.STOPPED): WritePhase.ENDED,
        (WritePhase.ENDED, WriteEvent.SETTLED): WritePhase.SETTLED,
    },
)


@dataclass(slots=True, eq=False)
class RequestWrite:
    """One request on its way to one decode worker. `taken` chunks of the source were handed to the executor.

    It is `given_up` where it was stopped. `left` is the client by which the decode worker gave it up: it is told when
    the last of `slices` is over.
    """

    client: DecodeClient
    target: PushTarget
    request: Request
    source: SourceRequest
    executor: TransferExecutor
    cover: ChunkCover
    phase: WritePhase = WritePhase.WRITING
    taken: int = 0
    given_up: bool = False
    left: DecodeClient | None = None
    slices: list[Slice] = field(default_factory=list)

    def on(self, event: WriteEvent) -> None:
        self.phase = WRITE.after(self.phase, event)

    @property
    def writing(self) -> bool:
        return self.phase is WritePhase.WRITING

    @property
    def under_way(self) -> bool:
        """Whether anything of it may still be written."""
        return bool(self.slices) or self.executor.under_way


class RequestWrites:
    """All writes of one prefill worker. What is being written is not released, though its lease may end."""

    def __init__(self, pool: Pool, context: ExecutorContext, counters: Counters, send: Send, leases: Leases) -> None:
        self._pool, self._context, self._counters, self._send, self._leases = pool, context, counters, send, leases
        self._all: dict[tuple[DecodeClient, str], RequestWrite] = {}
        # Requests, peers and what is under way to them.
        self._buried: list[tuple[str, str, TransferHandle]] = []
        # Requests of which a write ended with its connection, the last ones.
        self._lost: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[RequestWrite]:
        return iter(list(self._all.values()))

    def want(self, client: DecodeClient, asked: WriteRequest, source: SourceRequest) -> None:
        """Begin to write a request. Raises BadRequestError where it does not fit, or is wanted already."""
        if (target := client.push) is None:
            raise BadRequestError(f"request {asked.request}: this pair pulls: connect with mode push")
        if (client, asked.request) in self._all:
            raise BadRequestError(f"request {asked.request} is being written: wait until that has ended")
        request = self._checked(target, asked, source)
        executor = TransferExecutor(
            asked.request, client.key, self._context, lambda error: self._broken(client, asked.request, error)
        )
        cover = ChunkCover(client.plan, request, self._pool.worker)
        self._leases.begin_write(asked.request)
        self._all[client, asked.request] = write = RequestWrite(client, target, request, source, executor, cover)
        # What is there begins in this round.
        self._take(write)

    def leave(self, client: DecodeClient, request: str) -> None:
        """The decode worker gives a request up: it is told when nothing is written any more, whoever asked for it."""
        given_up = [write for write in self._of(request) if write.client.claimant.is_worker(client.claimant)]
        # Of what is buried nobody says that it has stopped: who waits for that asks again.
        if not given_up and not self._is_buried(request):
            self._send(client, Stopped(request, request in self._lost))
        for write in given_up:
            write.left = client
            self._stop(write)

    def stopped(self, request: str) -> Stopped | None:
        """That nothing of a request is written to anybody, for one of whom nothing is known; None if that is not so."""
        return None if self._of(request) or self._is_buried(request) else Stopped(request, lost=True)

    def drop(self, client: DecodeClient) -> None:
        """A decode worker is gone: nothing more is posted to it."""
        for write in [write for (of, _), write in self._all.items() if of is client]:
            self._stop(write)

    def end(self, request: str, error: KvplanError) -> None:
        """A request is not there any more: those that want it are told."""
        for write in [write for write in self._of(request) if write.writing]:
            self._fail(write, error)

    def to(self, engine: str) -> list[RequestWrite]:
        """What is being written to an engine's workers."""
        return [write for write in self._all.values() if write.client.name == engine]

    def bury(self, engine: str) -> list[RequestWrite]:
        """The processes of an engine have ended: what is under way to them pins nothing; it is returned."""
        buried = self.to(engine)
        for write in buried:
            self._stop(write)
            for slice_ in write.slices:
                peer, request = slice_.link.peer, write.request.id
                self._buried += [(request, peer, handle) for handle in slice_.handles if handle is not None]
                slice_.handles = []
        return buried

    def busy(self) -> set[str]:
        """The peers that something is under way to."""
        written = {write.target.peer for write in self if write.under_way}
        return written | {peer for _, peer, _ in self._buried}

    def _is_buried(self, request: str) -> bool:
        """Whether anything of a request is under way to who was vouched to have ended."""
        return any(name == request for name, _, _ in self._buried)

    def step(self) -> None:
        """Hand over what is there, follow what is posted, tell who has everything."""
        self._buried = [(name, peer, handle) for name, peer, handle in self._buried if not over(peer, handle)]
        for write in list(self._all.values()):
            self._end_late(write)
            if write.writing:
                self._take(write)
                write.executor.step()
            if write.writing and write.executor.done:
                self._finish(write)
            if not write.writing:
                self._settle(write)

    def _end_late(self, write: RequestWrite) -> None:
        """What is not promised any more is not written on: a reader that lends no buffer would keep the blocks."""
        name, pin = write.request.id, write.source.pin
        if write.writing and not self._leases.lasts(name, pin):
            self._fail(write, LeaseError(f"its lease ran out while pin {pin} was written"))

    def _of(self, request: str) -> list[RequestWrite]:
        return [write for (_, name), write in self._all.items() if name == request]

    def _take(self, write: RequestWrite) -> None:
        """Hand what is computed to the executor."""
        try:
            if write.source.tokens is None and write.source.whole and not write.taken:
                self._take_whole(write)
            while write.taken < write.source.ready:
                self._take_chunk(write, write.source.chunks[write.taken])
        except Exception as error:
            self._broken(write.client, write.request.id, error)

    def _take_whole(self, write: RequestWrite) -> None:
        demand = write.target.demands.demand(write.request)
        self._move(write, None, demand.of(self._shard(write.client.plan)))
        write.taken, write.executor.complete = 1, True

    def _take_chunk(self, write: RequestWrite, offered: OfferedChunk) -> None:
        plan, whole = write.client.plan, offered.chunk(write.source.names_all)
        chunk = chunks.received(plan, write.request, whole, self._pool.blocks, write.cover)
        write.taken += 1
        if chunk is None:
            return
        wanted = chunks.part(plan, write.client.claimant.worker, write.request, chunk, self._pool.worker)
        self._move(write, chunk.layers, wanted.of(self._shard(plan)))
        write.executor.complete = chunk.last

    def _move(self, write: RequestWrite, layers: frozenset[int] | None, runs: Mapping[str, Runs]) -> None:
        if runs:
            write.executor.add(write.target.links.of(layers), runs)

    def _shard(self, plan: Plan) -> int:
        return plan.prefill.workers[self._pool.worker].shard

    def _finish(self, write: RequestWrite) -> None:
        name, pin, meter = write.request.id, write.source.pin, write.executor.meter
        write.on(WriteEvent.WRITTEN)
        self._counters.add("moved_bytes", meter.moved, direction="write")
        self._counters.add("posts", meter.descriptors)
        self._counters.add("spans", meter.spans)
        self._counters.add("staged_bytes", meter.staged, direction="write")
        self._send(write.client, Written(name, pin, meter.moved))

    def _fail(self, write: RequestWrite, error: KvplanError) -> None:
        self._stop(write)
        self._send(write.client, Failed(write.request.id, error.code, str(error)))

    def _broken(self, client: DecodeClient, request: str, cause: Exception) -> None:
        error = cause if isinstance(cause, KvplanError) else TransferError(cause_text(cause))
        logs.event(logs.WARNING, "push failed", request=request, client=client.key, error=error)
        write = self._all[client, request]
        if isinstance(cause, PeerLostError):
            self._remember(request)
        if write.writing:
            self._counters.add("failures", reason=error.code)
            self._fail(write, error)

    def _remember(self, request: str) -> None:
        """A write of a request ended with its connection: what was sent may still land."""
        self._lost[request] = None
        if len(self._lost) > MOST_LOST:
            del self._lost[next(iter(self._lost))]

    def _stop(self, write: RequestWrite) -> None:
        if write.writing:
            write.on(WriteEvent.STOPPED)
            write.given_up = True
            write.slices += write.executor.stop()

    def _settle(self, write: RequestWrite) -> None:
        """Once nothing is written any more, forget a write, and say so to the decode worker that left it."""
        for slice_ in [slice_ for slice_ in write.slices if slice_.settled()]:
            write.slices.remove(slice_)
            slice_.executor.close(slice_)
        if write.given_up and _lingers(write):
            self._remember(write.request.id)
        if write.slices:
            return
        write.on(WriteEvent.SETTLED)
        del self._all[write.client, write.request.id]
        self._leases.end_write(write.request.id)
        # More of what was given up with it may still be written, through another connection.
        if write.left is not None and not any(other.left is write.left for other in self._of(write.request.id)):
            self._send(write.left, Stopped(write.request.id, write.request.id in self._lost))

    def _checked(self, target: PushTarget, asked: WriteRequest, source: SourceRequest) -> Request:
        opened, told = source.tokens, unpack(asked.prefill)
        # What is fed is compared chunk by chunk.
        if opened is None and (why := source.differs(told)):
            raise LeaseError(f"request {asked.request}: {why}")
        tables = told if source.tables is None else source.tables
        request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
        chunks.check_opened(request, opened)
        return target.rules.check(request, self._pool.blocks, target.blocks, fed=opened is not None)


def _lingers(write: RequestWrite) -> bool:
    """Whether what was sent of a write may land when nothing of it is under way any more: its connection broke.

    A post that failed is over once its peer is lost, which nobody knows any more when that was met anew.
    """
    failed = any(handle is None or handle.failed for slice_ in write.slices for handle in slice_.handles)
    return failed or (not write.slices and write.executor.lost(write.target.peer))
