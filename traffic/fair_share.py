"""Fair shares: flows that go through pools of limited rate at once, each as fast as any other that meets it there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simpy import Environment, Event

# Microseconds: what is nearer to its end than that is over, as floating point numbers are not exact.
NEAR = 1e-3


@dataclass(eq=False, slots=True)
class SharedPool:
    """What moves at most `rate` in a microsecond, of all flows together; `moved` is all that it has moved."""

    rate: float
    moved: float = 0.0


@dataclass(eq=False, slots=True)
class Flow:
    """What is `left` of one flow, which by itself would go at `cap` and now goes at `rate`; `done` is its event."""

    left: float
    cap: float
    pools: tuple[SharedPool, ...]
    done: Event
    rate: float = field(default=0.0)


# The cap and the pools of flows that have the same rate.
Alike = tuple[float, tuple[SharedPool, ...]]


class FairShare:
    """Flows at max-min fair rates: none is slowed down for the sake of one that is faster."""

    def __init__(self, env: Environment) -> None:
        self._env, self._flows, self._at, self._turn = env, list[Flow](), 0.0, 0

    def move(self, amount: float, cap: float, pools: Iterable[SharedPool]) -> Event:
        """An event for when `amount` has gone through all of `pools`, at `cap` a microsecond at most."""
        flow = Flow(amount, cap, tuple(pools), self._env.event())
        if amount <= 0:
            flow.done.succeed()
            return flow.done
        self._advance()
        self._flows.append(flow)
        self._plan()
        return flow.done

    def _advance(self) -> None:
        """Move all flows on to now, and end those that are through."""
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
    """Set the rates of all flows: flows share a pool equally, except what they cannot take elsewhere."""
    rates = _rates(Counter((flow.cap, flow.pools) for flow in flows))
    for flow in flows:
        flow.rate = rates[flow.cap, flow.pools]


def _rates(counts: Mapping[Alike, int]) -> dict[Alike, float]:
    """The rate of each group of identical flows, slowest first: the slowest cannot go faster anywhere."""
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
