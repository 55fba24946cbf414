"""Elect: deterministic, balanced, and nobody who holds something is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.pair.elect import elect, one_each, spread, within_reach
from kvplan.compiler.placement.holdings import TensorHoldings

WHAT = TensorHoldings((("head", (0, 1)),), (0, 1, 2, 3, 4), (1, 1, 0))


def test_reader_j_takes_holder_floor_j_m_over_r() -> None:
    chosen = elect(one_each, {WHAT: [10, 11, 12]}, {WHAT: [0, 1]})[WHAT]
    assert [(c.reader, c.holder, c.notified) for c in chosen] == [(0, 10, ()), (1, 11, (12,))]


@given(st.integers(1, 12), st.integers(1, 12))
def test_readers_are_even_over_holders_and_reach_covers_all(holders: int, readers: int) -> None:
    chosen = elect(one_each, {WHAT: list(range(holders))}, {WHAT: list(range(readers))})[WHAT]
    loads = [sum(c.holder == h for c in chosen) for h in range(holders)]
    assert max(loads) - min(loads) <= 1
    assert {h for c in chosen for h in (c.holder, *c.notified)} == set(range(holders))


@given(st.integers(1, 12), st.integers(1, 12))
def test_spread_reads_every_layer_once_per_reader(holders: int, readers: int) -> None:
    chosen = elect(spread, {WHAT: list(range(holders))}, {WHAT: list(range(readers))})[WHAT]
    for reader in range(readers):
        layers = sorted(layer for c in chosen if c.reader == reader for layer in c.layers)
        assert layers == list(WHAT.layers)
    assert {h for c in chosen for h in (c.holder, *c.notified)} == set(range(holders))


def test_spread_uses_every_holder_in_reach_while_there_are_layers() -> None:
    chosen = elect(spread, {WHAT: list(range(8))}, {WHAT: [0]})[WHAT]
    assert [c.layers for c in chosen] == [(0,), (1,), (2,), (3,), (4,)]
    assert chosen[0].notified == (5, 6, 7)
    assert within_reach([0, 1, 2, 3], 2, 1) == [2, 3]
