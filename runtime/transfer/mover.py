"""Mover: moves the bytes of transfers to and from peers, and reports the results. It knows no phases."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from kvplan.plan.layers import Layers
from kvplan.plan.types import Runs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.transfer.demand import Meter
from kvplan.runtime.transfer.executor import ExecutorContext, TransferExecutor
from kvplan.runtime.transfer.posts import over
from kvplan.runtime.transfer.prepare import PreparedLinks
from kvplan.runtime.transport.base import TransferHandle, is_lost

K = TypeVar("K", bound=Hashable)


class MoveEnds(NamedTuple):
    """The ends of a transfer: its `request`, and the `client` whose limits it shares.

    `peer` is the other end's name in the transport. `meter` counts what is moved over `links`.
    """

    request: str
    client: str
    peer: str
    links: PreparedLinks
    meter: Meter


@dataclass(frozen=True, slots=True)
class MoveResults(Generic[K]):
    """The callbacks for the results of each transfer.

    `broken`: something cannot be moved, and nothing more of it is posted. `arrived`, once: the wire has copied all of
    it, but a copy from the stage is still in progress. `placed`: all of it is in its place; the argument is its bytes.
    `settled`: nothing of a stopped transfer touches memory here any more. Its first bool is `lost`: the connection
    broke, so that sent bytes may still land. Its second is `abandoned`: the peer is dead, and posts to it remain.
    """

    broken: Callable[[K, Exception], object]
    placed: Callable[[K, int], object]
    settled: Callable[[K, bool, bool], object]
    arrived: Callable[[K], object] = lambda key: None


@dataclass(slots=True, eq=False)
class Moving:
    """One transfer between its `ends`. `read` says that the wire has moved all of it.

    `buried` handles go to a dead peer: blocks are freed without waiting for them, which was `reported`.
    """

    ends: MoveEnds
    executor: TransferExecutor
    read: bool = False
    lost: bool = False
    reported: bool = False
    buried: list[TransferHandle] = field(default_factory=list)

    def bury(self) -> None:
        for slice_ in self.executor.in_progress:
            self.buried += [handle for handle in slice_.handles if handle is not None]
            slice_.handles = []

    def reap(self, push: bool) -> None:
        """Close stopped slices and buried handles that can touch nothing any more."""
        self.executor.reap()
        self.lost = self.lost or (push and self._may_land())
        self.buried = [handle for handle in self.buried if not over(self.ends.peer, handle)]

    def _may_land(self) -> bool:
        """Return whether sent bytes may land after nothing is in progress any more, because the connection broke.

        A failed post ends when its peer is lost. The loss is read now, because a reconnect clears it.
        """
        slices = self.executor.in_progress
        failed = any(handle is None or handle.failed for slice_ in slices for handle in slice_.handles)
        return failed or (not slices and is_lost(self.executor.transport, self.ends.peer))


class Mover(Generic[K]):
    """All transfers that a worker reads, or with `push` writes, by key. `ends` returns the ends of a key's transfer."""

    def __init__(
        self,
        context: ExecutorContext,
        counters: Counters,
        ends: Callable[[K], MoveEnds],
        results: MoveResults[K],
        *,
        push: bool,
    ) -> None:
        self._context, self._counters, self._push = context, counters, push
        self._ends, self._results = ends, results
        self._all: dict[K, Moving] = {}
        # Runs that will probably be moved in one piece.
        self.foreseen: dict[K, Mapping[str, Runs]] = {}

    @property
    def touching(self) -> bool:
        """Whether bytes of transfers that are not stopped may be moving now, by the wire or by a copy."""
        # Stopped ones do not count: they may stay in progress for as long as a peer is frozen.
        return any(moving.executor.touching for moving in self._all.values())

    def under_way(self, key: K) -> bool:
        """Return whether any bytes of a transfer may still move."""
        return key in self._all and self._all[key].executor.under_way

    def left(self, key: K) -> int:
        """Return how many slices of a stopped transfer may still move."""
        return len(self._all[key].executor.in_progress) if key in self._all else 0

    def busy(self) -> set[str]:
        """Return the peers that a transfer is in progress with."""
        return {moving.ends.peer for moving in self._all.values() if moving.executor.under_way or moving.buried}

    def foresee(self, key: K, runs: Mapping[str, Runs]) -> None:
        """Have `prepare` prepare these runs, unless `move` comes first."""
        self.foreseen[key] = runs

    def prepare(self) -> None:
        """Prepare the foreseen runs. Call it after all other work of a step."""
        foreseen, self.foreseen = self.foreseen, {}
        for key, runs in foreseen.items():
            moving = self._moving(key)
            try:
                moving.executor.foresee(moving.ends.links.of(None), runs)
            except Exception as error:
                self._break(key, error)

    def move(self, key: K, layers: Layers | None, runs: Mapping[str, Runs], *, last: bool) -> None:
        """Move these runs by pair, in all layers or some. No more come after the `last` ones."""
        self.foreseen.pop(key, None)
        moving = self._moving(key)
        try:
            if runs and not moving.executor.stopped:
                moving.executor.add(moving.ends.links.of(layers), runs)
        except Exception as error:
            self._break(key, error)
        moving.executor.complete = last

    def stop(self, key: K, *, dead: bool = False) -> None:
        """Post nothing more of a transfer. If its peer is `dead`, posts in progress are not waited for."""
        self.foreseen.pop(key, None)
        if (moving := self._all.get(key)) is None:
            self._results.settled(key, False, False)
            return
        moving.executor.stop()
        if dead:
            moving.bury()
        # A write is reaped in the next step: only then does the transport know whether its connection is lost.
        if not self._push:
            self._reap(key, moving)

    def step(self) -> None:
        """Advance all transfers, and report their results."""
        for key, moving in list(self._all.items()):
            if not moving.executor.stopped:
                moving.executor.step()
            if moving.executor.stopped:
                self._reap(key, moving)
            else:
                self._follow(key, moving)

    def _moving(self, key: K) -> Moving:
        if (moving := self._all.get(key)) is None:
            ends = self._ends(key)
            fail = partial(self._break, key)
            executor = TransferExecutor(ends.request, ends.client, self._context, fail, ends.meter)
            moving = self._all[key] = Moving(ends, executor)
        return moving

    def _break(self, key: K, error: Exception) -> None:
        self._all[key].executor.stop()
        self._results.broken(key, error)

    def _follow(self, key: K, moving: Moving) -> None:
        executor = moving.executor
        if not moving.read and executor.read:
            moving.read = True
            self._count(executor.meter)
            if not executor.done:
                self._results.arrived(key)
        if executor.done:
            del self._all[key]
            if self._push:
                # Bytes that are read are counted when their request is done.
                self._counters.add("moved_bytes", executor.meter.moved, direction="write")
            self._results.placed(key, executor.meter.moved)

    def _count(self, meter: Meter) -> None:
        self._counters.add("posts", meter.descriptors)
        self._counters.add("spans", meter.spans)
        if meter.staged:
            self._counters.add("staged_bytes", meter.staged, direction="write" if self._push else "read")

    def _reap(self, key: K, moving: Moving) -> None:
        moving.reap(self._push)
        if moving.executor.in_progress:
            return
        if not moving.buried:
            del self._all[key]
            self._results.settled(key, moving.lost, False)
        elif not moving.reported:
            moving.reported = True
            self._results.settled(key, moving.lost, True)
