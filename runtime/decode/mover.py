"""Mover: what moves the bytes of a decode worker's loads, and what becomes of each part of them.

It carries out what the protocol core asks for, and reports what came of it as the core's inputs. It knows no phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvplan.runtime.checksum.background import ChecksumThread
from kvplan.runtime.checksum.checksum import EVERY, of_read
from kvplan.runtime.control.messages import AskBuffer, Sums
from kvplan.runtime.decode.engines import PrefillConnection
from kvplan.runtime.decode.unpacks import PageUnpacks
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.protocol import decode_effects as effects
from kvplan.runtime.protocol.decode_effects import PartFailed, PartPlaced, PartRead, PartSettled, PartSummed, Returned
from kvplan.runtime.protocol.effects import Input, Output
from kvplan.runtime.protocol.loads import Load, LoadPart, PrefillPeer
from kvplan.runtime.transfer.executor import ExecutorContext, Slice, TransferExecutor, close_settled
from kvplan.runtime.transfer.meter import Meter


class Mover:
    """Reads of loads, pieces that writers write by way of the stage here, and checksums. For its owner."""

    def __init__(
        self,
        pool: Pool,
        context: ExecutorContext,
        counters: Counters,
        connection: Callable[[PrefillPeer], PrefillConnection],
    ) -> None:
        self._pool, self._context, self._counters, self._connection = pool, context, counters, connection
        self._reads: dict[LoadPart, TransferExecutor] = {}
        self._unpacks: dict[LoadPart, tuple[PageUnpacks, PrefillConnection]] = {}
        # What was under way of parts that are stopped.
        self._left: dict[LoadPart, list[Slice]] = {}
        self._read: set[LoadPart] = set()
        # What will probably be read.
        self.foreseen: dict[LoadPart, effects.Foresee] = {}
        # Checksums that are being computed, or wait for that. They are to be closed when everything was stopped.
        self.sums = ChecksumThread[LoadPart, Sums]()
        self._news: list[Input] = []
        self.acts: dict[type[Output], Callable[[Any], Iterable[Input]]] = {
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

    def foresee(self, foresee: effects.Foresee) -> Iterable[Input]:
        """Have `prepare` prepare what will be read, unless it is asked for before."""
        self.foreseen[foresee.part] = foresee
        return ()

    def prepare(self) -> list[Input]:
        """Prepare what was foreseen; what came of it. It is for when all else is said."""
        foreseen, self.foreseen = self.foreseen, {}
        for part, one in foreseen.items():
            try:
                self._executor(part).foresee(self._connection(part.peer).links.of(None), one.runs)
            except Exception as error:
                self._fail(part, error)
        return self._told()

    def move(self, move: effects.Move) -> Iterable[Input]:
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
        return self._told()

    def buffer(self, buffer: effects.Buffer) -> Iterable[Input]:
        """A writer asks for a buffer for a piece, or returns one."""
        part, message = buffer.part, buffer.message
        if isinstance(message, AskBuffer):
            self._ask(buffer.load, part, message)
            return self._told()
        if part not in self._unpacks:
            return ()
        moved = self._unpacks[part][0].give_back(message.number, message.moved)
        return (Returned(part, message.number, moved),)

    def sum(self, asked: effects.Sum) -> Iterable[Input]:
        """Compute the checksums of what came from a prefill worker, on a thread."""
        load, part = asked.load, asked.part
        plan, sample = load.engine.pair.plan, load.sample or EVERY
        arguments = plan, part.worker, self._pool.worker, "decode", self._pool, load.request, sample
        self.sums.start(part, lambda: tuple((*of, value) for of, value in sorted(of_read(*arguments).items())))
        return ()

    def stop(self, stop: effects.Stop) -> Iterable[Input]:
        """Post nothing more of a part."""
        self.sums.drop(stop.part)
        self.foreseen.pop(stop.part, None)
        self._abandon(stop.part)
        return self._settle(stop.part)

    def step(self) -> list[Input]:
        """Follow what moves; what came of it."""
        for part, executor in list(self._reads.items()):
            self._follow(part, executor)
        if self._unpacks or self._left or len(self.sums):
            self._step_slowly()
        return self._told()

    def _step_slowly(self) -> None:
        """What most requests have nothing of: pieces that are unpacked, sums, parts that are stopped."""
        for part, (unpacks, connection) in list(self._unpacks.items()):
            if part not in self._left:
                self._unpack(part, unpacks, connection)
        for part in self.sums:
            try:
                sums = self.sums.take(part)
            except Exception as error:
                self._news.append(PartFailed(part, error))
                continue
            self._news += [] if sums is None else [PartSummed(part, sums)]
        for part in list(self._left):
            self._news += self._settle(part)

    def _ask(self, load: Load, part: LoadPart, asked: AskBuffer) -> None:
        connection = self._connection(part.peer)
        unpacks, _ = self._unpacks.setdefault(part, (PageUnpacks(self._context.stage, part.peer.name), connection))
        try:
            unpacks.want(connection.images, load.demand, part.peer.shard, asked, connection.control)
        except Exception as error:
            self._fail(part, error)

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
            self._news.append(PartPlaced(part))
        elif part not in self._read and executor.read:
            self._count(part.meter)
            self._read.add(part)
            self._news.append(PartRead(part))

    def _count(self, meter: Meter) -> None:
        """All of a part was read."""
        self._counters.add("posts", meter.descriptors)
        self._counters.add("spans", meter.spans)
        if meter.staged:
            self._counters.add("staged_bytes", meter.staged, direction="read")

    def _unpack(self, part: LoadPart, unpacks: PageUnpacks, connection: PrefillConnection) -> None:
        try:
            unpacks.step(part.request, connection.control)
        except Exception as error:
            self._fail(part, error)
            return
        if not unpacks:
            self._unpacks.pop(part, None)
            self._news.append(PartPlaced(part))

    def _fail(self, part: LoadPart, error: Exception) -> None:
        """Post nothing more of a part, at once."""
        self._abandon(part)
        self._news.append(PartFailed(part, error))

    def _abandon(self, part: LoadPart) -> None:
        executor = self._reads.pop(part, None)
        self._read.discard(part)
        if part in self._unpacks:
            self._unpacks[part][0].leave()
        self._left.setdefault(part, []).extend([] if executor is None else executor.stop())

    def _settle(self, part: LoadPart) -> list[Input]:
        """Close the slices that are over, and take back buffers; whether nothing is left of a part."""
        slices = self._left[part]
        close_settled(slices)
        if part in self._unpacks:
            self._unpacks[part][0].settle(part.writes)
        if slices or (part in self._unpacks and self._unpacks[part][0]):
            return []
        del self._left[part]
        self._unpacks.pop(part, None)
        return [PartSettled(part)]

    def _told(self) -> list[Input]:
        news, self._news = self._news, []
        return news
