"""Sides that are stored though no engine file was made for it, and pools that are not those of the plan."""

from __future__ import annotations

import pytest
from tests.end_to_end.memory import EMPTY, PADDED, allocate, ids_of, stamp
from tests.store.engines import REVISION, ROOM, Engine, compiled, full, keys_of, load_into, save

from kvplan.compiler.check.labels import atlas
from kvplan.compiler.check.sample import sample_request
from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.register import Pool
from kvplan.store.engine import Saver
from kvplan.store.errors import StoreSideError
from kvplan.store.layout import stored_layout
from kvplan.store.store import Store

COUNT = 4


def saving(model: str, stored: str) -> Engine:
    """An engine that holds a request, with a plan to that stored side."""
    made = compiled(model, "tp=2", stored)
    request = sample_request(made.prefill, made.decode, (0, COUNT * 16), 0)
    memory = tuple(allocate(made.prefill, n, ids_of(request.prefill), PADDED) for n in range(2))
    for each in memory:
        stamp(each, atlas(made.prefill, ROOM), request.prefill)
    return Engine(made, request, memory)


def loading(model: str, stored: str) -> Engine:
    """An engine that wants it, with a plan from there."""
    made = compiled(model, stored, "tp=4")
    request = sample_request(made.prefill, made.decode, (0, COUNT * 16), 1)
    memory = tuple(allocate(made.decode, n, ids_of(request.decode), EMPTY) for n in range(4))
    return Engine(made, request, memory)


@pytest.mark.parametrize(
    "side", ["engine=custom,form=by_tokens,block=16", "engine=gaudi,tp=1,block=16", "tp=1,groups=by_cache"]
)
def test_a_side_whose_caches_share_blocks_is_not_stored(side: str) -> None:
    """A window's objects would be there for who needs all tokens of another cache of its blocks."""
    plan = compiled("toy-windows", "tp=2", side).plan
    with pytest.raises(StoreSideError, match="compile a side that is made to be stored"):
        stored_layout(plan, "decode", REVISION)


@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("order", ["LBHNC", "k-and-v", "k-then-v"])
def test_planes_of_a_layer_that_lie_apart_are_one_object(order: str, layers: int) -> None:
    side, store, keys = f"engine=custom,block=16,order={order}", Store(), keys_of(COUNT)
    engine = saving("toy-heads", side)
    save(store, engine, keys, layers=layers)
    layout = stored_layout(engine.made.plan, "decode", REVISION, layers)
    named = [part.name for parts in layout.parts.values() for part in parts]
    assert len(set(named)) == len(named) == len(store.entries()) // COUNT
    into = loading("toy-heads", side)
    assert (load_into(store, into, keys, layers=layers), into.wrong()) == (COUNT, [])


def pools_of(order: str) -> list[Pool]:
    return full("toy-heads", f"tp=2,order={order}", 1).pools


@pytest.mark.parametrize(
    "wrong",
    [pools_of("LBHNC")[::-1], pools_of("LBNHC"), pools_of("LBHNC")[:1], [*pools_of("LBHNC"), pools_of("LBHNC")[0]]],
    ids=["in another order", "of another side", "too few", "too many"],
)
def test_pools_that_are_not_those_of_the_plan_are_refused(wrong: list[Pool]) -> None:
    plan = full("toy-heads", "tp=2,order=LBHNC", 1).made.plan
    with pytest.raises(RegisterError):
        Saver(Store(), plan, wrong, revision=REVISION)
