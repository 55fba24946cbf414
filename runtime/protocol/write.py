"""Write: one request on its way to one decode worker, its phase, and what of it may be moved next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

from kvplan.plan.request import Request
from kvplan.runtime.control.messages import WriteRequest, unpack
from kvplan.runtime.errors import LeaseError
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.protocol.prefill_effects import MoveWrite, WriteKey
from kvplan.runtime.protocol.readers import Reader, WriteTarget
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover


class WritePhase(IntEnum):
    """What a write is: under way; ended, with posts that may still write; or settled, when nothing does."""

    WRITING = auto()
    ENDED = auto()
    # Its decode engine is dead: posts may still write to it, and need no blocks here.
    BURIED = auto()
    SETTLED = auto()


class WriteEvent(Enum):
    """What happens to a write."""

    WRITTEN = auto()
    # It failed, its decode worker gave it up or is gone, or the pin is over.
    STOPPED = auto()
    BURIED = auto()
    SETTLED = auto()


WRITE = StateMachine(
    "a write",
    {
        (WritePhase.WRITING, WriteEvent.WRITTEN): WritePhase.ENDED,
        (WritePhase.WRITING, WriteEvent.STOPPED): WritePhase.ENDED,
        (WritePhase.ENDED, WriteEvent.BURIED): WritePhase.BURIED,
        (WritePhase.ENDED, WriteEvent.SETTLED): WritePhase.SETTLED,
        (WritePhase.BURIED, WriteEvent.SETTLED): WritePhase.SETTLED,
    },
)


@dataclass(slots=True, eq=False)
class RequestWrite:
    """One request on its way to one decode worker. `taken` chunks of the source are being moved, or were.

    It is `begun` when anything of it may be under way, and `left` is the reader by which the decode worker gave it up:
    that is told when nothing of it is under way any more.
    """

    reader: Reader
    target: WriteTarget
    request: Request
    source: SourceRequest
    cover: ChunkCover
    phase: WritePhase = WritePhase.WRITING
    taken: int = 0
    begun: bool = False
    left: Reader | None = None

    def on(self, event: WriteEvent) -> None:
        self.phase = WRITE.after(self.phase, event)

    @property
    def key(self) -> WriteKey:
        return WriteKey(self.reader, self.request.id)

    @property
    def writing(self) -> bool:
        return self.phase is WritePhase.WRITING


def wanted(target: WriteTarget, asked: WriteRequest, source: SourceRequest) -> Request:
    """The request that is to be written. Raises BadRequestError, CardError or LeaseError where it does not fit."""
    opened, told = source.tokens, unpack(asked.prefill)
    # What is fed is compared chunk by chunk.
    if opened is None and (why := source.differs(told)):
        raise LeaseError(f"request {asked.request}: {why}")
    tables = told if source.tables is None else source.tables
    request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
    chunks.check_opened(request, opened)
    return target.rules.check(request, target.prefill_blocks, target.decode_blocks, fed=opened is not None)


def next_moves(write: RequestWrite, worker: int) -> Iterator[MoveWrite]:
    """What of a write is computed, and was not handed over yet. Raises what says that a chunk does not fit."""
    if write.source.tokens is None:
        if write.source.whole and not write.taken:
            write.taken = 1
            yield _whole(write, worker)
        return
    while write.taken < write.source.ready:
        chunk = write.source.chunks[write.taken]
        write.taken += 1
        if (move := _chunk(write, chunk, worker)) is not None:
            yield move


def _whole(write: RequestWrite, worker: int) -> MoveWrite:
    demand = write.target.demands.demand(write.request)
    return MoveWrite(write.key, None, demand.of(_shard(write, worker)), last=True)


def _chunk(write: RequestWrite, offered: Chunk, worker: int) -> MoveWrite | None:
    plan = write.reader.plan
    chunk = chunks.received(plan, write.request, offered, write.target.prefill_blocks, write.cover)
    if chunk is None:
        return None
    wanted = chunks.part(plan, write.reader.claimant.worker, write.request, chunk, worker)
    return MoveWrite(write.key, chunk.layers, wanted.of(_shard(write, worker)), chunk.last)


def _shard(write: RequestWrite, worker: int) -> int:
    return write.reader.plan.prefill.workers[worker].shard
