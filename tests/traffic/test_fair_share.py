"""Fair shares: no pool is asked for more than it has, nobody could be faster without another one being slower."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment

from kvplan.traffic.fair_share import FairShare, Flow, SharedPool, share

RATES = st.floats(0.5, 100)
FLOWS = st.lists(st.tuples(RATES, st.sets(st.integers(0, 3), max_size=2)), min_size=1, max_size=8)


@given(st.lists(RATES, min_size=4, max_size=4), FLOWS)
def test_shares_are_max_min_fair(rates: Sequence[float], wanted: Sequence[tuple[float, set[int]]]) -> None:
    env, pools = Environment(), [SharedPool(rate) for rate in rates]
    flows = [Flow(1.0, cap, tuple(pools[n] for n in sorted(numbers)), env.event()) for cap, numbers in wanted]
    share(flows)
    taken = {pool: sum(flow.rate for flow in flows if pool in flow.pools) for pool in pools}
    assert all(taken[pool] <= pool.rate * (1 + 1e-9) for pool in pools)
    for flow in flows:
        full = [pool for pool in flow.pools if taken[pool] >= pool.rate * (1 - 1e-9)]
        largest = [max(other.rate for other in flows if pool in other.pools) for pool in full]
        # At its cap, or among the fastest of a pool that is full.
        assert flow.rate >= flow.cap * (1 - 1e-9) or any(flow.rate >= most * (1 - 1e-9) for most in largest)


def test_who_comes_later_slows_down_who_is_there_and_who_ends_makes_room() -> None:
    env, pool, ended = Environment(), SharedPool(10.0), dict[str, float]()
    network = FairShare(env)

    def flow(name: str, begin: float, amount: float):
        yield env.timeout(begin)
        yield network.move(amount, 100.0, (pool,))
        ended[name] = env.now

    for words in (("first", 0.0, 100.0), ("second", 5.0, 100.0), ("nothing", 7.0, 0.0)):
        env.process(flow(*words))
    env.run()
    # 50 alone, then 5 a microsecond each until 50 are through, then the second one's other 50 alone.
    assert ended == pytest.approx({"first": 15.0, "second": 20.0, "nothing": 7.0}, abs=2e-3)
    assert pool.moved == pytest.approx(200.0)
