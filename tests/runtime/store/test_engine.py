"""What one mesh saved any other one loads, byte for byte."""

from __future__ import annotations

from itertools import product

import pytest
from tests.runtime.store.engines import empty, full, keys_of, load_into, save

from kvplan.runtime.store.store import Store

SIDES = {
    "toy-heads": ["tp=1", "tp=4,order=nhd,block=32", "engine=sglang,tp=2", "pp=2,tp=2,order=BLHNC"],
    "toy-windows": ["tp=2", "engine=sglang,block=8,order=hnd,tp=1", "tp=4,order=LHBNC,block=32"],
    "toy-latent": ["tp=1", "tp=2,dcp=2", "engine=sglang,block=64,tp=2"],
    "toy-mamba2": ["tp=1", "tp=4", "engine=sglang,block=16,tp=2"],
    "toy-kda": ["tp=1", "engine=sglang,block=16,tp=2"],
    "toy-delta": ["tp=1", "tp=2,order=nhd", "engine=sglang,block=1,tp=4"],
    "toy-sparse": ["block=64,tp=1", "block=32,tp=2"],
    "toy-unlike": ["tp=1", "tp=2"],
    "toy-conv": ["tp=4", "engine=sglang,block=4,tp=2"],
}
PAIRS = [(model, *pair) for model, sides in SIDES.items() for pair in product(sides, sides)]
LENGTH = 7


@pytest.mark.parametrize(("model", "saves", "loads"), PAIRS)
def test_any_mesh_loads_what_any_mesh_saved(model: str, saves: str, loads: str) -> None:
    block, keys = (64, keys_of(LENGTH, 64)) if model == "toy-sparse" else (16, keys_of(LENGTH))
    store = Store()
    assert save(store, full(model, saves, LENGTH, block), keys) >= LENGTH
    engine = empty(model, loads, (0, LENGTH * block), block)
    assert load_into(store, engine, keys) == LENGTH
    assert not engine.wrong()
