"""Load mover: what comes into a decode worker for each load, as the protocol core asks for, and checksums of it."""

from __future__ import annotations

from collections.abc import Callable

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
from kvplan.runtime.protocol.loads import LoadPart, PrefillPeer
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.staging.staged import StagedPiece
from kvplan.runtime.transfer.demand import Demand
from kvplan.runtime.transfer.executor import ExecutorContext
from kvplan.runtime.transfer.mover import MoveEnds, Mover, MoveResults


class LoadMover:
    """What this worker reads for loads, what writers write by way of the stage here, and checksums. For its owner."""

    def __init__(
        self,
        core: DecodeCore,
        pool: Pool,
        context: ExecutorContext,
        stage: Stage,
        counters: Counters,
        connection: Callable[[PrefillPeer], PrefillConnection],
    ) -> None:
        self._core, self._pool, self._stage, self._connection = core, pool, stage, connection
        results = MoveResults[LoadPart](
            broken=core.loads.broken,
            moved=lambda part, size: core.placed(part),
            settled=lambda part, lost, under_way: core.settled(part),
            read=core.read,
        )
        self.reads = Mover[LoadPart](context, counters, False, self._ends, results)
        # Pieces that are written by way of the stage here.
        self._unpacks: dict[LoadPart, LentPieces] = {}
        # What will probably be read.
        self.foreseen: dict[LoadPart, effects.Foresee] = {}
        # Checksums that are being computed, or wait for that. They are to be closed when everything was stopped.
        self.sums = ChecksumThread[LoadPart, Sums]()

    @property
    def touching(self) -> bool:
        """Whether bytes may be on their way now, by the wire or from the stage."""
        # Parts that are stopped may be waited for as long as a peer is frozen.
        return self.reads.touching or any(not pieces.left for pieces in self._unpacks.values())

    def foresee(self, foresee: effects.Foresee) -> None:
        """Have `prepare` prepare what will be read, unless it is asked for before."""
        self.foreseen[foresee.part] = foresee

    def prepare(self) -> None:
        """Prepare what was foreseen. It is for when all else is said."""
        foreseen, self.foreseen = self.foreseen, {}
        for part, one in foreseen.items():
            self.reads.foresee(part, one.runs)

    def move(self, move: effects.Move) -> None:
        """Read what a part takes."""
        self.foreseen.pop(move.key, None)
        self.reads.move(move.key, move.layers, move.runs, last=move.last)

    def buffer(self, buffer: effects.Buffer) -> None:
        """A writer asks for a buffer for a piece, or returns one."""
        part, message = buffer.part, buffer.message
        if isinstance(message, AskBuffer):
            self._ask(buffer, message)
        elif part in self._unpacks and self._unpacks[part].give_back(message.number, moved=message.moved):
            self._core.returned(part, message.number)

    def sum(self, asked: effects.Sum) -> None:
        """Compute the checksums of what came from a prefill worker, on a thread."""
        load, part = asked.load, asked.part
        plan, sample = load.engine.pair.plan, load.sample or EVERY
        arguments = plan, part.worker, self._pool.worker, "decode", self._pool, load.request, sample
        self.sums.start(part, lambda: tuple((*of, value) for of, value in sorted(of_read(*arguments).items())))

    def stop(self, stop: effects.Stop) -> None:
        """Post nothing more of a part, and copy nothing more of it that has not begun."""
        part = stop.key
        self.sums.drop(part)
        self.foreseen.pop(part, None)
        if part in self._unpacks:
            self._unpacks[part].leave()
            self._unpack(part, self._unpacks[part])
        else:
            self.reads.stop(part)

    def step(self) -> None:
        """Follow what moves."""
        self.reads.step()
        for part, pieces in list(self._unpacks.items()):
            self._unpack(part, pieces)
        for part in self.sums:
            try:
                sums = self.sums.take(part)
            except Exception as error:
                self._core.loads.broken(part, error)
                continue
            if sums is not None:
                self._core.summed(part, sums)

    def _ends(self, part: LoadPart) -> MoveEnds:
        peer = part.peer.name
        return MoveEnds(part.request, peer, peer, self._connection(part.peer).links, part.meter)

    def _ask(self, buffer: effects.Buffer, asked: AskBuffer) -> None:
        part = buffer.part
        if part not in self._unpacks:
            self._unpacks[part] = self._pieces(part)
        pieces = self._unpacks[part]
        try:
            wanted = pieces.wanted(asked)
            _check_written(asked.request, wanted, buffer.load.demand, part.peer.shard)
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

    def _fail(self, part: LoadPart, error: Exception) -> None:
        """Lend nothing more for a part, at once."""
        self._unpacks[part].leave()
        self._core.loads.broken(part, error)

    def _unpack(self, part: LoadPart, pieces: LentPieces) -> None:
        """Copy what was written to its place, or take back what nothing touches any more of a part that was stopped."""
        if not pieces.left:
            pieces.step()
        if pieces.left:
            pieces.settle(touched=part.writes)
        if len(pieces):
            return
        del self._unpacks[part]
        (self._core.settled if pieces.left else self._core.placed)(part)


def _check_written(request: str, piece: StagedPiece, demand: Demand, shard: int) -> None:
    """Raises BadRequestError where a piece is of blocks that the request does not write."""
    wanted = demand.of(shard)
    for part, runs, _ in piece.parts:
        own = wanted.get(part.pair.name)
        if own is None or not np.isin(runs.decode_block, own.decode_block).all():
            raise BadRequestError(f"request {request}: a piece is of blocks that are not to be written for it")
