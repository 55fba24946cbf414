"""Mover: moves the bytes of transfers to and from peers, and reports the results. It knows no phases."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from kvplan.plan.layers import Layers
from kvplan.plan.types import Runs
from kvplan.runtime.transfer.executor import ExecutorContext, MoveEnds, TransferExecutor

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class MoveResults(Generic[K]):
    """The callbacks for the results of each transfer.

    `broken`: something cannot be moved, and nothing more of it is posted. `arrived`, in each step: the wire has copied
    all of it, but a copy from the stage is still in progress. `placed`: all of it is in its place; the argument is its
    bytes. `settled`: nothing of a stopped transfer is in progress any more; the argument is whether the connection
    broke, so that sent bytes may still land.
    """

    broken: Callable[[K, Exception], object]
    placed: Callable[[K, int], object]
    settled: Callable[[K, bool], object]
    arrived: Callable[[K], object] = lambda key: None


class Mover(Generic[K]):
    """All transfers that a worker reads, or with `push` writes, by key. `ends` returns the ends of a key's transfer."""

    def __init__(
        self,
        context: ExecutorContext,
        ends: Callable[[K], MoveEnds],
        results: MoveResults[K],
        *,
        push: bool,
    ) -> None:
        self._context, self._ends, self._results, self._push = context, ends, results, push
        self._all: dict[K, TransferExecutor] = {}
        # Runs that will probably be moved in one piece.
        self.foreseen: dict[K, Mapping[str, Runs]] = {}

    @property
    def touching(self) -> bool:
        """Whether bytes of transfers that are not stopped may be moving now, by the wire or by a copy."""
        # Stopped ones do not count: they may stay in progress for as long as a peer is frozen.
        return any(moving.touching for moving in self._all.values())

    def under_way(self, key: K) -> bool:
        """Return whether any bytes of a transfer may still move."""
        return key in self._all and self._all[key].under_way

    def left(self, key: K) -> int:
        """Return how many slices of a stopped transfer may still move."""
        return len(self._all[key].in_progress) if key in self._all else 0

    def busy(self) -> set[str]:
        """Return the peers that a transfer is in progress with."""
        return {moving.ends.peer for moving in self._all.values() if moving.under_way}

    def foresee(self, key: K, runs: Mapping[str, Runs]) -> None:
        """Have `prepare` prepare these runs, unless `move` comes first."""
        self.foreseen[key] = runs

    def prepare(self) -> None:
        """Prepare the foreseen runs. Call it after all other work of a step."""
        foreseen, self.foreseen = self.foreseen, {}
        for key, runs in foreseen.items():
            moving = self._moving(key)
            try:
                moving.foresee(moving.ends.links.of(None), runs)
            except Exception as error:
                self._break(key, error)

    def move(self, key: K, layers: Layers | None, runs: Mapping[str, Runs], *, last: bool) -> None:
        """Move these runs by pair, in all layers or some. No more come after the `last` ones."""
        self.foreseen.pop(key, None)
        moving = self._moving(key)
        try:
            if runs and not moving.stopped:
                moving.add(moving.ends.links.of(layers), runs)
        except Exception as error:
            self._break(key, error)
        moving.complete = last

    def stop(self, key: K) -> None:
        """Post nothing more of a transfer."""
        self.foreseen.pop(key, None)
        if (moving := self._all.get(key)) is None:
            self._results.settled(key, False)
            return
        moving.stop()
        # A write is reaped in the next step: only then does the transport know whether its connection is lost.
        if not self._push:
            self._reap(key, moving)

    def step(self) -> None:
        """Advance all transfers, and report their results."""
        for key, moving in list(self._all.items()):
            if not moving.stopped:
                moving.step()
            if moving.stopped:
                self._reap(key, moving)
            else:
                self._follow(key, moving)

    def _moving(self, key: K) -> TransferExecutor:
        if (moving := self._all.get(key)) is None:
            moving = self._all[key] = TransferExecutor(self._ends(key), self._context, partial(self._break, key))
        return moving

    def _break(self, key: K, error: Exception) -> None:
        self._all[key].stop()
        self._results.broken(key, error)

    def _follow(self, key: K, moving: TransferExecutor) -> None:
        if moving.done:
            del self._all[key]
            if self._push:
                # Bytes that are read are counted when their request is done.
                self._context.counters.add("moved_bytes", moving.meter.moved, direction="write")
            self._results.placed(key, moving.meter.moved)
        elif moving.read:
            self._results.arrived(key)

    def _reap(self, key: K, moving: TransferExecutor) -> None:
        moving.reap(self._push)
        if not moving.in_progress:
            del self._all[key]
            self._results.settled(key, moving.lost)
