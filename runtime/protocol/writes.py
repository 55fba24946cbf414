"""Writes: what decode workers want written, as far as it is there. Its bytes are moved elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime.control.messages import Failed, Stopped, WriteRequest, Written
from kvplan.runtime.errors import LeaseError, PeerLostError, TransferError, cause_text
from kvplan.runtime.protocol.prefill_effects import (
    StopWrite,
    WriteBroken,
    WriteFailed,
    WriteKey,
    WriteMoved,
    WriteSettled,
)
from kvplan.runtime.protocol.prefill_state import PrefillState
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.protocol.write import RequestWrite, WriteEvent, WritePhase, next_moves, wanted
from kvplan.runtime.transfer.chunks import ChunkCover

# Requests that are remembered of which a write ended with its connection.
MOST_LOST = 1 << 16


class RequestWrites:
    """All writes of one prefill worker. What is being written is not released, though its lease may end."""

    def __init__(self, state: PrefillState) -> None:
        self._state = state
        self._all: dict[WriteKey, RequestWrite] = {}
        # Requests of which a write ended with its connection, the last ones.
        self._lost: dict[str, None] = {}

    def __iter__(self) -> Iterator[RequestWrite]:
        return iter(list(self._all.values()))

    def want(self, reader: Reader, asked: WriteRequest, source: SourceRequest) -> None:
        """Begin to write a request. Raises BadRequestError where it does not fit, or is wanted already, LeaseError."""
        if (target := reader.target) is None:
            raise BadRequestError(f"request {asked.request}: this pair pulls: connect with mode push")
        if WriteKey(reader, asked.request) in self._all:
            raise BadRequestError(f"request {asked.request} is being written: wait until that has ended")
        request = wanted(target, asked, source)
        cover = ChunkCover(reader.plan, request, self._state.worker)
        self._state.leases.begin_write(asked.request)
        write = RequestWrite(reader, target, request, source, cover)
        self._all[write.key] = write
        # What is there begins in this step.
        self._take(write)

    def leave(self, reader: Reader, request: str) -> None:
        """The decode worker gives a request up: it is told when nothing is written any more, whoever asked for it."""
        all_of = self._of(request)
        given_up = [write for write in all_of if write.reader.claimant.is_worker(reader.claimant)]
        buried = [write for write in all_of if write.phase is WritePhase.BURIED]
        # Of what is buried nobody says that it has stopped: who waits for that asks again.
        if not given_up and not buried:
            self._state.send(reader, Stopped(request, request in self._lost))
        for write in given_up:
            write.left = reader if write not in buried else write.left
        for write in given_up:
            self._stop(write)

    def stopped(self, request: str) -> Stopped | None:
        """That nothing of a request is written to anybody, for one of whom nothing is known; None if that is not so."""
        return None if self._of(request) else Stopped(request, lost=True)

    def drop(self, reader: Reader) -> None:
        """A decode worker is gone: nothing more is posted to it."""
        for write in [write for write in self if write.reader is reader]:
            self._stop(write)

    def end(self, request: str, error: KvplanError) -> None:
        """A request is not there any more: those that want it are told."""
        for write in [write for write in self._of(request) if write.writing]:
            self._fail(write, error)

    def bury(self, engine: str) -> None:
        """The processes of an engine have ended: what is under way to them pins nothing."""
        for write in [write for write in self if write.reader.name == engine]:
            self._stop(write)
            if write.phase is WritePhase.ENDED:
                self._state.out.append(StopWrite(write.key, dead=True))

    def advance(self) -> None:
        """Hand over what is computed. What is not promised any more is not written on.

        A reader that lends no buffer would keep the blocks otherwise.
        """
        for write in [write for write in self if write.writing]:
            if self._lasts(write):
                self._take(write)

    def moved(self, moved: WriteMoved) -> None:
        """All of a write is written."""
        write = self._all.get(moved.key)
        if write is None or not write.begun:
            return
        if write.writing and self._lasts(write):
            write.on(WriteEvent.WRITTEN)
            self._state.send(write.reader, Written(write.request.id, write.source.pin, moved.size))
        # One that was given up meanwhile is settled all the same.
        self._settle(write)

    def broken(self, broken: WriteBroken) -> None:
        """Something of a write cannot be written."""
        if (write := self._all.get(broken.key)) is not None:
            self._break(write, broken.cause)

    def settled(self, settled: WriteSettled) -> None:
        """Nothing of a write that was stopped reads blocks here any more."""
        write = self._all.get(settled.key)
        if write is None or write.writing:
            return
        if settled.lost:
            self._remember(write.request.id)
        if not settled.under_way:
            self._settle(write)
        elif write.phase is WritePhase.ENDED:
            write.on(WriteEvent.BURIED)
            self._state.leases.end_write(write.request.id)

    def _of(self, request: str) -> list[RequestWrite]:
        return [write for key, write in self._all.items() if key.request == request]

    def _lasts(self, write: RequestWrite) -> bool:
        """Whether the pin of a write lasts; one that does not ends the write."""
        name, pin = write.request.id, write.source.pin
        lasts = self._state.leases.lasts(name, pin)
        if not lasts:
            self._fail(write, LeaseError(f"its lease ran out while pin {pin} was written"))
        return lasts

    def _take(self, write: RequestWrite) -> None:
        """Have what is computed moved."""
        try:
            for move in next_moves(write, self._state.worker):
                if move.runs or move.last:
                    write.begun = True
                    self._state.out.append(move)
        except Exception as error:
            self._break(write, error)

    def _fail(self, write: RequestWrite, error: KvplanError) -> None:
        self._stop(write)
        self._state.send(write.reader, Failed(write.request.id, error.code, str(error)))

    def _break(self, write: RequestWrite, cause: Exception) -> None:
        error = cause if isinstance(cause, KvplanError) else TransferError(cause_text(cause))
        self._state.out.append(WriteFailed(write.key, error, write.writing))
        if isinstance(cause, PeerLostError):
            self._remember(write.request.id)
        if write.writing:
            self._fail(write, error)

    def _remember(self, request: str) -> None:
        """A write of a request ended with its connection: what was sent may still land."""
        self._lost[request] = None
        if len(self._lost) > MOST_LOST:
            del self._lost[next(iter(self._lost))]

    def _stop(self, write: RequestWrite) -> None:
        if not write.writing:
            return
        write.on(WriteEvent.STOPPED)
        if write.begun:
            self._state.out.append(StopWrite(write.key))
        else:
            self._settle(write)

    def _settle(self, write: RequestWrite) -> None:
        """Nothing is written any more: forget a write, and say so to the decode worker that left it."""
        name, pins = write.request.id, write.phase is not WritePhase.BURIED
        write.on(WriteEvent.SETTLED)
        del self._all[write.key]
        if pins:
            self._state.leases.end_write(name)
        # More of what was given up with it may still be written, through another connection.
        if write.left is not None and not any(other.left is write.left for other in self._of(name)):
            self._state.send(write.left, Stopped(name, name in self._lost))
