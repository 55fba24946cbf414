"""Mover: moves the bytes of a decode worker's loads, as the protocol core asks for, and tells it what came of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvplan.plan.errors import BadRequestError
from kvplan.runtime.checksum.background import ChecksumThread
from kvplan.runtime.checksum.checksum import EVERY, of_read
from kvplan.runtime.control.messages import AskBuffer, Sums
from kvplan.runtime.decode.engines import PrefillConnection
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.decode import DecodeCore
from kvplan.runtime.protocol.effects import Output
from kvplan.runtime.protocol.loads import Load, LoadPart, PrefillPeer
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.staging.staged import StagedPiece
from kvplan.runtime.transfer.demand import Demand
from kvplan.runtime.transfer.executor import ExecutorContext, Slice, TransferExecutor, close_settled
from kvplan.runtime.transfer.meter import Meter


class Mover:
    """Reads of loads, pieces that writers write by way of the stage here, and checksums. For its owner."""

    def __init__(
        self,
        core: DecodeCore,
        pool: Pool,
        context: ExecutorContext,
        stage: Stage,
        counters: Counters,
        connection: Callable[[PrefillPeer], PrefillConnection],
    ) -> None:
        self._core, self._pool, self._context, self._stage = core, pool, context, stage
        self._counters, self._connection = counters, connection
        self._reads: dict[LoadPart, TransferExecutor] = {}
        # Pieces that are written by way of the stage here.
        self._unpacks: dict[LoadPart, LentPieces] = {}
        # What was in progress of parts that are stopped.
        self._left: dict[LoadPart, list[Slice]] = {}
        self._read: set[LoadPart] = set()
        # What will probably be read.
        self.foreseen: dict[LoadPart, effects.Foresee] = {}
        # Checksums that are being computed, or wait for that. They are to be closed when everything was stopped.
        self.sums = ChecksumThread[LoadPart, Sums]()
        self.acts: dict[type[Output], Callable[[Any], None]] = {
            effects.Foresee: self.foresee,
            effects.Move: self.move,
            effects.Buffer: self.buffer,
            effects.Sum: self.sum,
            effects.Stop: self.stop,
        }

    @property
    def touching(self) -> bool:
        """Whether bytes may be on their way now, by the wire or from the stage."""
        # Parts that are stopped may be waited for as long as a peer is frozen.
        written = any(part not in self._left for part in self._unpacks)
        return written or any(executor.touching for executor in self._reads.values())

    def under_way(self, part: LoadPart) -> int:
        """Slices of a part that was stopped that may still move."""
        return len(self._left.get(part, ()))

    def foresee(self, foresee: effects.Foresee) -> None:
        """Have `prepare` prepare what will be read, unless it is asked for before."""
        self.foreseen[foresee.part] = foresee

    def prepare(self) -> None:
        """Prepare what was foreseen. It is for when all else is said."""
        foreseen, self.foreseen = self.foreseen, {}
        for part, one in foreseen.items():
            try:
                self._executor(part).foresee(self._connection(part.peer).links.of(None), one.runs)
            except Exception as error:
                self._fail(part, error)

    def move(self, move: effects.Move) -> None:
        """Read what a part takes."""
        part = move.part
        self.foreseen.pop(part, None)
        executor = self._executor(part)
        try:
            if move.runs:
                executor.add(self._connection(part.peer).links.of(move.layers), move.runs)
        except Exception as error:
            self._fail(part, error)
        executor.complete = move.last

    def buffer(self, buffer: effects.Buffer) -> None:
        """A writer asks for a buffer for a piece, or returns one."""
        part, message = buffer.part, buffer.message
        if isinstance(message, AskBuffer):
            self._ask(buffer.load, part, message)
        elif part in self._unpacks and self._unpacks[part].give_back(message.number, moved=message.moved):
            self._core.returned(part, message.number)

    def sum(self, asked: effects.Sum) -> None:
        """Compute the checksums of what came from a prefill worker, on a thread."""
        load, part = asked.load, asked.part
        plan, sample = load.engine.pair.plan, load.sample or EVERY
        arguments = plan, part.worker, self._pool.worker, "decode", self._pool, load.request, sample
        self.sums.start(part, lambda: tuple((*of, value) for of, value in sorted(of_read(*arguments).items())))

    def stop(self, stop: effects.Stop) -> None:
        """Post nothing more of a part."""
        self.sums.drop(stop.part)
        self.foreseen.pop(stop.part, None)
        self._abandon(stop.part)
        self._settle(stop.part)

    def step(self) -> None:
        """Follow what moves."""
        for part, executor in list(self._reads.items()):
            self._follow(part, executor)
        if self._unpacks or self._left or len(self.sums):
            self._step_slowly()

    def _step_slowly(self) -> None:
        """What most requests have nothing of: pieces that are unpacked, sums, parts that are stopped."""
        for part in [part for part in self._unpacks if part not in self._left]:
            self._unpack(part, self._unpacks[part])
        for part in self.sums:
            try:
                sums = self.sums.take(part)
            except Exception as error:
                self._core.loads.broken(part, error)
                continue
            if sums is not None:
                self._core.summed(part, sums)
        for part in list(self._left):
            self._settle(part)

    def _ask(self, load: Load, part: LoadPart, asked: AskBuffer) -> None:
        if part not in self._unpacks:
            self._unpacks[part] = self._pieces(part)
        pieces = self._unpacks[part]
        try:
            wanted = pieces.wanted(asked)
            _check_written(asked.request, wanted, load.demand, part.peer.shard)
        except Exception as error:
            self._fail(part, error)
        else:
            pieces.add(asked, wanted)

    def _pieces(self, part: LoadPart) -> LentPieces:
        connection = self._connection(part.peer)
        return LentPieces(
            self._stage,
            connection.images,
            part.peer.name,
            packed=False,
            say=connection.control.say,
            failed=lambda _, error: self._fail(part, error),
        )

    def _executor(self, part: LoadPart) -> TransferExecutor:
        """What moves a part's bytes, made when first asked for."""
        if part not in self._reads:
            self._reads[part] = TransferExecutor(
                part.request, part.peer.name, self._context, lambda error: self._fail(part, error), part.meter
            )
        return self._reads[part]

    def _follow(self, part: LoadPart, executor: TransferExecutor) -> None:
        executor.step()
        if part not in self._reads:
            return
        if executor.done:
            del self._reads[part]
            if part not in self._read:
                self._count(part.meter)
            self._read.discard(part)
            self._core.placed(part)
        elif part not in self._read and executor.read:
            self._count(part.meter)
            self._read.add(part)
            self._core.read(part)

    def _count(self, meter: Meter) -> None:
        """All of a part was read."""
        self._counters.add("posts", meter.descriptors)
        self._counters.add("spans", meter.spans)
        if meter.staged:
            self._counters.add("staged_bytes", meter.staged, direction="read")

    def _unpack(self, part: LoadPart, pieces: LentPieces) -> None:
        pieces.step()
        if part not in self._left and not len(pieces):
            del self._unpacks[part]
            self._core.placed(part)

    def _fail(self, part: LoadPart, error: Exception) -> None:
        """Post nothing more of a part, at once."""
        self._abandon(part)
        self._core.loads.broken(part, error)

    def _abandon(self, part: LoadPart) -> None:
        executor = self._reads.pop(part, None)
        self._read.discard(part)
        if part in self._unpacks:
            self._unpacks[part].leave()
        self._left.setdefault(part, []).extend([] if executor is None else executor.stop())

    def _settle(self, part: LoadPart) -> None:
        """Close the slices that are over, and take back buffers. The core is told if nothing is left of a part."""
        slices = self._left[part]
        close_settled(slices)
        if part in self._unpacks:
            self._unpacks[part].settle(touched=part.writes)
        if slices or len(self._unpacks.get(part, ())):
            return
        del self._left[part]
        self._unpacks.pop(part, None)
        self._core.settled(part)


def _check_written(request: str, piece: StagedPiece, demand: Demand, shard: int) -> None:
    """Raises BadRequestError where a piece is of blocks that the request does not write."""
    wanted = demand.of(shard)
    for part, runs, _ in piece.parts:
        own = wanted.get(part.pair.name)
        if own is None or not np.isin(runs.decode_block, own.decode_block).all():
            raise BadRequestError(f"request {request}: a piece is of blocks that are not to be written for it")
