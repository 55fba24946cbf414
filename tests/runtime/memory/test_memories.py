"""Planes of the host's and of a device's memory in one worker: as its side declares, or refused before a byte moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.worlds import memory

from kvplan.plan.digest import sealed
from kvplan.plan.planes import extents, further
from kvplan.plan.types import Plan, Side
from kvplan.runtime import Memory, errors, views
from kvplan.runtime.control.card import describe, geometry
from kvplan.runtime.memory.geometry import check, logical_blocks
from kvplan.runtime.memory.register import Pool

SHAPE, MODEL = Shape(1, ratio=2), Model()
HOST, DEVICE = "DRAM", "VRAM"


def declared(**words: str) -> Plan:
    """A plan whose decode side declares where some of its caches lie."""
    made = plan(SHAPE, SHAPE, MODEL)
    workers = [
        replace(one, planes=tuple(replace(entry, memory=words.get(entry.cache, "")) for entry in one.planes))
        for one in made.decode.workers
    ]
    return sealed(replace(made, decode=replace(made.decode, workers=tuple(workers))))


def pages(side: Side, **types: Any) -> dict[str, Any]:
    """Arrays of a worker's planes; those of a cache that is named as memory of such a type, or of two."""
    given = memory(SHAPE, MODEL, 0)
    return {name: _as(array, types.get(name.partition(".")[0])) for name, array in given.items()}


def _as(array: np.ndarray, types: Any) -> Any:
    if isinstance(types, tuple):
        (first, blocks), (second, _) = types
        return _as(array[:blocks], first), _as(array[blocks:], second)
    if types is None:
        return array
    return Memory(array.ctypes.data, array.strides[0], len(array), array.nbytes, types, 0)


def pool(given: dict[str, Any], **words: str) -> Pool:
    side = declared(**words).decode
    return views(side, 0, given)


def test_planes_of_two_memories_are_registered_by_type() -> None:
    side = declared(kv="host").decode
    found = views(side, 0, pages(side, state=DEVICE)).geometry
    types = {
        plane.name: found.mem_types[region]
        for plane, region in zip(extents(side.workers[0]), found.region, strict=True)
    }
    assert types == {"kv.3": HOST, "kv.7": HOST, "state.3": DEVICE, "state.7": DEVICE}
    every = dict(found.by_type())
    assert list(every) == [HOST, DEVICE]
    assert sorted(np.concatenate([*every.values()]).tolist()) == sorted(found.regions.tolist())


@pytest.mark.parametrize(
    ("words", "types", "text"),
    [
        ({"kv": "host"}, {"kv": DEVICE}, r"kv\.3 lies in VRAM, its side says host memory \(DRAM\)"),
        ({"kv": "device"}, {}, r"kv\.3 lies in DRAM, its side says device memory \(VRAM\).* memory\.kv=host"),
        ({"state": "device"}, {"kv": DEVICE}, r"state\.3 lies in DRAM"),
        ({}, {"kv": DEVICE}, r"state\.3 lies in DRAM and kv\.3 in VRAM.* compile it with memory\.state=host"),
        ({"kv": "device+host"}, {"kv": ((HOST, 40), (DEVICE, 40))}, r"kv\.3 lies in DRAM, its side says device memory"),
        ({"kv": "device+host"}, {"kv": DEVICE}, r"the blocks of kv\.3 lie in two memories.* pass two arrays"),
    ],
)
def test_a_plane_that_lies_elsewhere_than_declared_is_refused(
    words: dict[str, str], types: dict[str, Any], text: str
) -> None:
    side = declared(**words).decode
    with pytest.raises(errors.RegisterError, match=text):
        views(side, 0, pages(side, **types))


def test_what_is_not_declared_may_be_either_memory() -> None:
    side = declared(kv="host").decode
    for types in ({}, {"state": DEVICE}):
        assert views(side, 0, pages(side, **types)).blocks == {"kv": 40, "state": 40}


def test_blocks_in_two_memories_are_counted_together() -> None:
    side = declared(kv="device+host").decode
    found = views(side, 0, pages(side, kv=((DEVICE, 24), (HOST, 56))))
    assert found.blocks == logical_blocks(found.geometry, side, 0) == {"kv": 40, "state": 40}
    assert found.further == further(side.workers[0]) == {0: 4, 1: 5}
    assert [plane.memory for plane in extents(side.workers[0])] == ["device", "device", "", "", "host", "host"]
    assert found.geometry.count.tolist() == [24, 24, 40, 40, 56, 56]


@pytest.mark.parametrize("both", [((DEVICE, 23), (HOST, 57)), ((DEVICE, 0), (HOST, 80)), ((DEVICE, 80), (HOST, 0))])
def test_each_memory_has_whole_logical_blocks(both: Any) -> None:
    side = declared(kv="device+host").decode
    with pytest.raises(errors.KvplanError, match=r"whole number of logical blocks|no blocks"):
        views(side, 0, pages(side, kv=both))


def test_all_planes_of_a_group_have_as_many_blocks_in_each_memory() -> None:
    side = declared(kv="device+host").decode
    given = pages(side, kv=((DEVICE, 24), (HOST, 56)))
    given["kv.7"] = pages(side, kv=((DEVICE, 26), (HOST, 54)))["kv.7"]
    with pytest.raises(errors.RegisterError, match=r"kv\.7 has 26 blocks and kv\.3 24: one group has one block table"):
        views(side, 0, given)


def test_pages_of_two_memories_may_have_one_address() -> None:
    """Addresses of a device may be those of the host where they share no address space; those of one memory may not."""
    side = declared(kv="host", state="device").decode
    given = pages(side, state=DEVICE)
    at = given["kv.3"].ctypes.data
    given |= {
        name: Memory(at + number * 40 * given[name].stride, given[name].stride, 40, 40 * given[name].stride, DEVICE)
        for number, name in enumerate(("state.3", "state.7"))
    }
    assert views(side, 0, given).blocks["state"] == 40
    plain = {name: replace(value, mem_type=HOST) if "state" in name else value for name, value in given.items()}
    with pytest.raises(errors.RegisterError, match="share bytes"):
        views(declared().decode, 0, plain)


COLUMNS = ("base", "stride", "page", "count", "device", "region")
LIES: dict[str, Any] = {
    "another type": lambda card: {"mem_types": tuple(HOST for _ in card.mem_types)},
    "no type": lambda card: {"mem_types": ()},
    "a type too few": lambda card: {"mem_types": card.mem_types[:-1]},
    "a word that is none": lambda card: {"mem_types": ("FILE", *card.mem_types[1:])},
    "further blocks left out": lambda card: {name: getattr(card, name)[:4] for name in COLUMNS},
    "further blocks of the first memory": lambda card: {"region": (*card.region[:4], *card.region[:2])},
    "a page beyond its region": lambda card: {"count": (*card.count[:4], card.count[4] + 2, card.count[5] + 2)},
}


@pytest.mark.parametrize("name", LIES)
def test_a_card_that_lies_about_its_memory_is_refused(name: str) -> None:
    made = declared(kv="device+host")
    found = views(made.decode, 0, pages(made.decode, kv=((DEVICE, 24), (HOST, 56))))
    card = describe(0, made, "run", 1, found.geometry, b"metadata")
    check(geometry(card), made.decode, 0)
    with pytest.raises((errors.RegisterError, errors.AddressError)):
        check(geometry(msgspec.structs.replace(card, **LIES[name](card))), made.decode, 0)
