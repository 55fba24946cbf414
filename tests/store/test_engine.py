"""Any mesh loads what any other one saved, byte for byte."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.helpers.agents import has_nixl
from tests.shares import later
from tests.store.engines import empty, full, keys_of, load_into, save

from kvplan.runtime.transport.nixl import Nixl
from kvplan.store.store import Store

SIDES = {
    "toy-heads": ["tp=1", "tp=8,order=nhd,block=32", "engine=sglang,tp=2", "pp=2,tp=2,order=BLHNC"],
    "toy-windows": ["tp=2", "engine=sglang,block=8,order=hnd,tp=1", "tp=4,order=LHBNC,block=32"],
    "toy-latent": ["tp=1", "tp=2,dcp=2", "engine=sglang,block=64,tp=2"],
    "toy-mamba2": ["tp=1", "tp=4", "engine=sglang,block=16,tp=2"],
    "toy-kda": ["tp=1", "engine=sglang,block=16,tp=2"],
    "toy-delta": ["tp=1", "tp=2,order=nhd", "engine=sglang,block=1,tp=4"],
    "toy-sparse": ["block=64,tp=1", "block=128,tp=2"],
    "toy-unlike": ["tp=1", "tp=2"],
    "toy-conv": ["tp=4", "engine=sglang,block=4,tp=2"],
}
PAIRS = [(model, *pair) for model, sides in SIDES.items() for pair in product(sides, sides)]
LENGTH = 7


@pytest.mark.parametrize(("model", "saves", "loads"), [*PAIRS[::2], *later(PAIRS[1::2])])
def test_any_mesh_loads_what_any_mesh_saved(model: str, saves: str, loads: str) -> None:
    block, keys = (64, keys_of(LENGTH, 64)) if model == "toy-sparse" else (16, keys_of(LENGTH))
    store = Store()
    assert save(store, full(model, saves, LENGTH, block), keys) >= LENGTH
    engine = empty(model, loads, (0, LENGTH * block), block)
    assert load_into(store, engine, keys) == LENGTH
    assert not engine.wrong()


ORDERS = ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"]


def sides_of(text: str, *choices: list[Any]) -> st.SearchStrategy[str]:
    """Sides that say `text` with one of each of the choices."""
    return st.tuples(*[st.sampled_from(each) for each in choices]).map(lambda chosen: text.format(*chosen))


ENGINES = st.one_of(
    sides_of("engine=custom,tp={},pp={},order={},block={}", [1, 3, 4], [1, 2, 3], ORDERS, [4, 12, 48]),
    sides_of("tp={},order={},block={}", [1, 2, 4, 8], ORDERS, [16, 32, 64]),
    sides_of("engine=sglang,tp={},order={},block={}", [1, 2, 8], ["nhd", "hnd"], [1, 8, 16]),
)


@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from(["toy-heads", "toy-windows"]),
    sides=st.tuples(ENGINES, ENGINES),
    block=st.sampled_from([8, 16, 48]),
    lengths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    first=st.floats(0, 0.99),
    layers=st.integers(0, 3),
)
def test_whatever_is_found_is_right(
    model: str,
    sides: tuple[str, str],
    block: int,
    lengths: tuple[int, int],
    first: float,
    layers: int,
) -> None:
    """Any two engines, any blocks, any prefix that one of them has."""
    keys, store, saved = keys_of(9, block), Store(), min(lengths)
    for count in lengths:
        save(store, full(model, sides[0], count, block), keys[:count], layers=layers)
    engine = empty(model, sides[1], (int(first * saved * block), saved * block), block)
    assert load_into(store, engine, keys[:saved], layers=layers) == saved
    assert not engine.wrong()


@pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed")
def test_over_nixl() -> None:
    """An engine with its memory on a device needs NIXL."""
    store, keys = Store(), keys_of(3)
    save(store, full("toy-mamba2", "tp=4", 3), keys, make=Nixl)
    engine = empty("toy-mamba2", "tp=2,order=nhd", (0, 48))
    assert load_into(store, engine, keys, make=Nixl) == 3
    assert not engine.wrong()
