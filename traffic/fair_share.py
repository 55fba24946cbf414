"""Fair shares: concurrent flows through pools of limited rate, each as fast as the others that it meets there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simpy import Environment, Event

# Microseconds: flows nearer to their end are over, because floating point numbers are not exact.
NEAR = 1e-3


@dataclass(eq=False, slots=True)
class SharedPool:
    """A pool that moves at most `rate` in a microsecond, for all flows together; `moved` is its total."""

    rate: float
    moved: float = 0.0


@dataclass(eq=False, slots=True)
class Flow:
    """The amount `left` of one flow, which alone would go at `cap` and now goes at `rate`; `done` is its event."""

    left: float
    cap: float
    pools: tuple[SharedPool, ...]
    done: Event
    rate: float = field(default=0.0)


# The cap and the pools of flows with the same rate.
Alike = tuple[float, tuple[SharedPool, ...]]


class FairShare:
    """Flows at max-min fair rates: no flow is slowed down in favour of a faster one."""

    def __init__(self, env: Environment) -> None:
        self._env, self._flows, self._at, self._turn = env, list[Flow](), 0.0, 0

    def move(self, amount: float, cap: float, pools: Iterable[SharedPool]) -> Event:
        """Return an event for the time when `amount` has gone through all of `pools`, at most `cap` a microsecond."""
        flow = Flow(amount, cap, tuple(pools), self._env.event())
        if amount <= 0:
            flow.done.succeed()
            return flow.done
        self._advance()
        self._flows.append(flow)
        self._plan()
        return flow.done

    def _advance(self) -> None:
        """Advance all flows to now, and end those that are complete."""
        passed, self._at = self._env.now - self._at, self._env.now
        ended = []
        for flow in self._flows:
            moved = min(flow.left, flow.rate * passed)
            flow.left -= moved
            for pool in flow.pools:
                pool.moved += moved
            if flow.left <= flow.rate * NEAR:
                ended.append(flow)
        for flow in ended:
            self._flows.remove(flow)
            flow.done.succeed()

    def _plan(self) -> None:
        """Set the rates again, and wake when the next flow ends."""
        self._turn += 1
        share(self._flows)
        if self._flows:
            soonest = min(flow.left / flow.rate for flow in self._flows)
            self._env.process(self._wake(soonest, self._turn))

    def _wake(self, after: float, turn: int) -> Generator[Event, object, None]:
        yield self._env.timeout(after)
        if turn == self._turn:
            self._advance()
            self._plan()


def share(flows: Sequence[Flow]) -> None:
    """Set the rates of all flows: flows share a pool equally, except for shares that some cannot use."""
    rates = _rates(Counter((flow.cap, flow.pools) for flow in flows))
    for flow in flows:
        flow.rate = rates[flow.cap, flow.pools]


def _rates(counts: Mapping[Alike, int]) -> dict[Alike, float]:
    """Return the rate of each group of identical flows, slowest first: the slowest cannot go faster anywhere."""
    rates: dict[Alike, float] = {}
    left = {pool: pool.rate for _, pools in counts for pool in pools}
    users = dict.fromkeys(left, 0)
    for (_, pools), count in counts.items():
        for pool in pools:
            users[pool] += count
    while len(rates) < len(counts):
        shares = {pool: left[pool] / users[pool] for pool in left if users[pool]}
        allowed = {alike: _allowed(alike, shares) for alike in counts if alike not in rates}
        least = min(allowed.values())
        for alike in [alike for alike, most in allowed.items() if most <= least * (1 + 1e-12)]:
            rates[alike] = least
            for pool in alike[1]:
                left[pool] = max(0.0, left[pool] - least * counts[alike])
                users[pool] -= counts[alike]
    return rates


def _allowed(alike: Alike, shares: Mapping[SharedPool, float]) -> float:
    cap, pools = alike
    return min([cap, *(shares[pool] for pool in pools)])
