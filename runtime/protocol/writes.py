"""Writes: the requests that decode workers want written, handed over as they are computed; drivers move the bytes.

A write keeps no blocks. If the hold of its request ends first, the write stops, and what is still posted of it may
read bytes that the engine has put there since. They are never used: only a write whose hold lasts is confirmed by
Written, and the decode worker keeps its blocks in quarantine until Stopped says that the write has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.control.messages import Stopped, WriteRequest, Written, unpack
from kvplan.runtime.errors import LeaseError, PeerLostError, TransferError, cause_text
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.protocol.effects import Move, Stop, WriteFailed, WriteKey
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover
from kvplan.runtime.transfer.demand import PairRules

# Requests that are remembered because a write of them ended with a lost connection.
MOST_CUT_OFF = 1 << 16


class WritePhase(IntEnum):
    """The phases of a write: in progress; ended, with posts that may still write; or settled, when none does."""

    WRITING = auto()
    ENDED = auto()
    SETTLED = auto()


class WriteEvent(Enum):
    """An event of a write."""

    WRITTEN = auto()
    # It failed, its decode worker gave it up or is lost, or the hold has ended.
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
    """One request on its way to one decode worker. The first `taken` chunks of the source were handed over.

    `begun` says that bytes of it may move. `given_up_by` is the reader over which the decode worker gave it up; it is
    notified when nothing of the write is in progress any more.
    """

    reader: Reader
    pair: PairRules
    request: Request
    source: SourceRequest
    cover: ChunkCover
    phase: WritePhase = WritePhase.WRITING
    taken: int = 0
    begun: bool = False
    given_up_by: Reader | None = None

    def on(self, event: WriteEvent) -> None:
        self.phase = WRITE.after(self.phase, event)

    @property
    def key(self) -> WriteKey:
        return WriteKey(self.reader, self.request.id)

    @property
    def writing(self) -> bool:
        return self.phase is WritePhase.WRITING


class RequestWrites:
    """All writes of one prefill worker."""

    def __init__(self, state: PrefillState) -> None:
        self._state = state
        self._all: dict[WriteKey, RequestWrite] = {}
        # The last requests that had a write whose connection was lost.
        self._cut_off: dict[str, None] = {}

    def __iter__(self) -> Iterator[RequestWrite]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def want(self, reader: Reader, asked: WriteRequest, source: SourceRequest) -> None:
        """Begin to write a held request. Raises BadRequestError if it does not fit or is being written, LeaseError."""
        if (pair := reader.writes) is None:
            raise BadRequestError(f"request {asked.request}: this pair pulls: connect with mode push")
        if WriteKey(reader, asked.request) in self._all:
            raise BadRequestError(f"request {asked.request} is being written: wait until that has ended")
        request = wanted(pair, asked, source)
        cover = ChunkCover(pair.plan, request, self._state.worker)
        write = RequestWrite(reader, pair, request, source, cover)
        self._all[write.key] = write
        self._take(write)

    def leave(self, reader: Reader, request: str) -> None:
        """Stop the writes of a request to a decode worker that gave it up, over this connection and earlier ones.

        It is notified once they are settled.
        """
        given_up = [write for write in self._of(request) if write.reader.claimant.is_before(reader.claimant)]
        if not given_up:
            self._state.send(reader, Stopped(request, request in self._cut_off))
        # All are marked first: stopping one that has not begun settles it, and `_forget` looks at the others.
        for write in given_up:
            write.given_up_by = reader
        for write in given_up:
            self._stop(write)

    def stopped(self, request: str) -> Stopped | None:
        """Return the answer to an unknown peer that nothing of a request is being written; None while a write is."""
        return None if self._of(request) else Stopped(request, lost=True)

    def drop(self, reader: Reader) -> None:
        """Stop all writes to a reader that was dropped."""
        for write in [write for write in self if write.reader is reader]:
            self._stop(write)

    def end(self, request: str, error: KvplanError) -> None:
        """Fail all writes of a request that is no longer held, and notify their readers."""
        for write in [write for write in self._of(request) if write.writing]:
            self._fail(write, error)

    def advance(self) -> None:
        """Hand over the chunks that are computed."""
        for write in [write for write in self if write.writing]:
            self._take(write)

    def moved(self, key: WriteKey, size: int) -> None:
        """Note that a write has written all of its `size` bytes, and notify its reader."""
        write = self._all.get(key)
        if write is None or not write.begun:
            return
        if write.writing:
            write.on(WriteEvent.WRITTEN)
            # If the hold has ended, bytes of another request may have been read. A Done may end it in the same turn.
            if self._state.leases.lasts(write.request.id, write.source.hold):
                self._state.send(write.reader, Written(write.request.id, write.source.hold, size))
        # A write that was given up meanwhile is settled, too.
        self._forget(write)

    def broken(self, key: WriteKey, cause: Exception) -> None:
        """Fail a write because a part of it cannot be written. No further part is posted."""
        if (write := self._all.get(key)) is not None:
            self._break(write, cause)

    def settled(self, key: WriteKey, lost: bool) -> None:
        """Note that nothing of a stopped write is in progress any more.

        `lost` says that its connection broke, so that bytes that were sent may still land.
        """
        write = self._all.get(key)
        if write is None or write.writing:
            return
        if lost:
            self._remember(write.request.id)
        self._forget(write)

    def _of(self, request: str) -> list[RequestWrite]:
        return [write for key, write in self._all.items() if key.request == request]

    def _take(self, write: RequestWrite) -> None:
        """Hand over the chunks that are computed and were not handed over yet."""
        try:
            for move in next_moves(write, self._state.worker):
                if move.runs or move.last:
                    write.begun = True
                    self._state.out.append(move)
        except Exception as error:
            self._break(write, error)

    def _fail(self, write: RequestWrite, error: KvplanError) -> None:
        self._stop(write)
        self._state.fail(write.reader, write.request.id, error)

    def _break(self, write: RequestWrite, cause: Exception) -> None:
        error = cause if isinstance(cause, KvplanError) else TransferError(cause_text(cause))
        self._state.out.append(WriteFailed(write.key, error, write.writing))
        if isinstance(cause, PeerLostError):
            self._remember(write.request.id)
        if write.writing:
            self._fail(write, error)

    def _remember(self, request: str) -> None:
        """Remember that a write of a request ended with a lost connection: bytes that were sent may still land."""
        self._cut_off[request] = None
        if len(self._cut_off) > MOST_CUT_OFF:
            del self._cut_off[next(iter(self._cut_off))]

    def _stop(self, write: RequestWrite) -> None:
        if not write.writing:
            return
        write.on(WriteEvent.STOPPED)
        if write.begun:
            self._state.out.append(Stop(write.key))
        else:
            self._forget(write)

    def _forget(self, write: RequestWrite) -> None:
        """Forget a write that is settled, and notify the decode worker if it gave the write up."""
        name = write.request.id
        write.on(WriteEvent.SETTLED)
        del self._all[write.key]
        # Another write that was given up with this one may still be in progress, over another connection.
        reader = write.given_up_by
        if reader is not None and not any(other.given_up_by is reader for other in self._of(name)):
            self._state.send(reader, Stopped(name, name in self._cut_off))


def wanted(pair: PairRules, asked: WriteRequest, source: SourceRequest) -> Request:
    """Return the request to write. Raises BadRequestError, CardError or LeaseError if it does not fit."""
    opened, told = source.tokens, unpack(asked.prefill)
    # The blocks of a fed request are compared chunk by chunk.
    if opened is None and (why := source.differs(told)):
        raise LeaseError(f"request {asked.request}: {why}")
    tables = told if source.tables is None else source.tables
    decode, whole = unpack(asked.decode), asked.whole_last_page
    request = Request(asked.request, asked.tokens, tables, decode, asked.lengths, whole)
    chunks.check_opened(request, opened)
    return pair.checked(request, fed=opened is not None)


def next_moves(write: RequestWrite, worker: int) -> Iterator[Move]:
    """Yield the computed parts of a write that were not handed over yet. Raises if a chunk does not fit."""
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


def _whole(write: RequestWrite, worker: int) -> Move:
    demand = write.pair.demands.demand(write.request)
    return Move(write.key, None, demand.of(_shard(write, worker)), last=True)


def _chunk(write: RequestWrite, offered: Chunk, worker: int) -> Move | None:
    chunk = chunks.received(write.pair.plan, write.request, offered, write.pair.prefill, write.cover)
    if chunk is None:
        return None
    wanted = chunks.part(write.pair.demands, write.request, chunk, worker)
    return Move(write.key, chunk.layers, wanted.of(_shard(write, worker)), chunk.last)


def _shard(write: RequestWrite, worker: int) -> int:
    return write.pair.plan.prefill.workers[worker].shard
