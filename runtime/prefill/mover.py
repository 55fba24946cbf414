"""Mover: carries writes out, and says what came of them. It knows bytes, and nothing of leases or phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.prefill.peers import PushLinks
from kvplan.runtime.protocol.effects import MoveWrite, StopWrite, WriteKey
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.protocol.writes import RequestWrites
from kvplan.runtime.transfer.executor import ExecutorContext, Slice, TransferExecutor, close_settled
from kvplan.runtime.transfer.posts import over
from kvplan.runtime.transport.base import TransferHandle, is_lost


@dataclass(slots=True, eq=False)
class MovedWrite:
    """The bytes of one write to the `peer` of the transport. Once it is `stopped`, `slices` may still move.

    `buried` transfers go to a peer that is dead: nobody waits for them before blocks are free.
    """

    peer: str
    executor: TransferExecutor
    stopped: bool = False
    lost: bool = False
    told: bool = False
    slices: list[Slice] = field(default_factory=list)
    buried: list[TransferHandle] = field(default_factory=list)

    @property
    def under_way(self) -> bool:
        """Whether anything of it may still be written, to a peer that is not dead."""
        return bool(self.slices) or self.executor.under_way

    def stop(self) -> None:
        """Post nothing more."""
        if not self.stopped:
            self.stopped = True
            self.slices += self.executor.stop()

    def bury(self) -> None:
        for slice_ in self.slices:
            self.buried += [handle for handle in slice_.handles if handle is not None]
            slice_.handles = []

    def settle(self) -> None:
        """Close what can touch nothing any more."""
        close_settled(self.slices)
        self.lost = self.lost or self._lingers()
        self.buried = [handle for handle in self.buried if not over(self.peer, handle)]

    def _lingers(self) -> bool:
        """Whether what was sent may land when nothing of it is in progress any more: its connection broke.

        A post that failed is over once its peer is lost, which nobody knows any more when that was met again.
        """
        failed = any(handle is None or handle.failed for slice_ in self.slices for handle in slice_.handles)
        return failed or (not self.slices and is_lost(self.executor.transport, self.peer))


class WriteMover:
    """All that is being written. `links` are the ways to a reader's memory, `writes` are told what came of each."""

    def __init__(
        self,
        context: ExecutorContext,
        counters: Counters,
        links: Callable[[Reader], PushLinks],
        writes: RequestWrites,
    ) -> None:
        self._context, self._counters, self._links, self._writes = context, counters, links, writes
        self._all: dict[WriteKey, MovedWrite] = {}

    def __len__(self) -> int:
        return len(self._all)

    def move(self, move: MoveWrite) -> None:
        """Write what a write asks for."""
        links = self._links(move.key.reader)
        moved = self._all.get(move.key)
        if moved is None:
            moved = self._all[move.key] = MovedWrite(links.peer, self._executor(move.key))
        try:
            if move.runs and not moved.stopped:
                moved.executor.add(links.prepared.of(move.layers), move.runs)
        except Exception as error:
            self._break(move.key, error)
        moved.executor.complete = move.last

    def stop(self, stop: StopWrite) -> None:
        """Post nothing more of a write."""
        if (moved := self._all.get(stop.key)) is not None:
            moved.stop()
            if stop.dead:
                moved.bury()

    def step(self) -> None:
        """Follow what is posted."""
        for key, moved in list(self._all.items()):
            if not moved.stopped:
                moved.executor.step()
            if not moved.stopped and moved.executor.done:
                self._finish(key, moved)
            if moved.stopped:
                self._settle(key, moved)

    def under_way(self, key: WriteKey) -> bool:
        """Whether anything of a write may still be written."""
        return key in self._all and self._all[key].under_way

    def busy(self) -> set[str]:
        """The peers that something is in progress to."""
        return {moved.peer for moved in self._all.values() if moved.under_way or moved.buried}

    def _executor(self, key: WriteKey) -> TransferExecutor:
        return TransferExecutor(key.request, key.reader.key, self._context, lambda error: self._break(key, error))

    def _break(self, key: WriteKey, error: Exception) -> None:
        self._all[key].stop()
        self._writes.broken(key, error)

    def _finish(self, key: WriteKey, moved: MovedWrite) -> None:
        meter = moved.executor.meter
        del self._all[key]
        self._counters.add("moved_bytes", meter.moved, direction="write")
        self._counters.add("posts", meter.descriptors)
        self._counters.add("spans", meter.spans)
        self._counters.add("staged_bytes", meter.staged, direction="write")
        self._writes.moved(key, meter.moved)

    def _settle(self, key: WriteKey, moved: MovedWrite) -> None:
        moved.settle()
        if moved.slices:
            return
        if not moved.buried:
            del self._all[key]
            self._writes.settled(key, lost=moved.lost)
        elif not moved.told:
            moved.told = True
            self._writes.settled(key, lost=moved.lost, under_way=True)
