"""A drawn page shows what naive indexing finds there, byte by byte, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.layouts.sweep import POOL, POOLED
from tests.shares import later

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.oracle import Ints, OraclePlane, PageField, planes
from kvplan.compiler.explain.picture.describe_picture import picture
from kvplan.dsl.library import Library, load

# Orders, states, latents, quantised records, layers inside a block, tiles, uneven shares, turns of the tokens.
PAIRS = [
    ("llama-3.1-8b", "tp=4", "tp=2,order=nhd"),
    ("llama-3.1-8b", "tp=4", "tp=4,order=BLHNC"),
    ("llama-3.1-8b", "tp=4,order=LHBNC", "tp=2,order=LHBNC"),
    ("llama-3.1-8b", "tp=1,pp=2", "engine=custom,tp=4,copies=round_robin,order=shuffled"),
    ("llama-3.1-8b", "engine=custom,tp=3,share.attention.head=5+3+0", "engine=vllm-legacy,tp=2"),
    ("nemotron-3-nano-30b", "tp=4", "tp=1"),
    ("qwen3-next-80b", "tp=2", "tp=1,conv=SD"),
    ("deepseek-v3", "tp=8", "tp=8,dcp=8"),
    ("deepseek-v3", "tp=4,kv_dtype=fp8_ds_mla", "tp=2,kv_dtype=fp8_ds_mla"),
    ("gemma-3-27b", "tp=2", "tp=4"),
]
# Sides that a model has where it refuses the common ones.
CUSTOM = {"deepseek-v4-flash": ("engine=custom,tp=2,block=256", "engine=custom,tp=1,block=256")}
OF_ITEMS = (f"engine={POOL},tp=2", f"engine={POOL}")
SHIPPED = [
    (model, *(OF_ITEMS if model in POOLED else CUSTOM.get(model, ("tp=2", "tp=1,order=nhd"))))
    for model in sorted(load().models)
]
# `make test` draws every second one.
DRAWN = [*SHIPPED[::2], *later((pair,) for pair in SHIPPED[1::2])]


@cache
def library() -> Library:
    return load()


@cache
def compiled(pair: tuple[str, str, str]) -> tuple[Compiled, Any]:
    made = compile_pair(library(), *pair, {})
    return made, picture(made.plan, made.facts)


def test_rows_of_several_tokens_are_called_rows() -> None:
    """Text and figures do the same: a label `token 1` would be wrong for a row that begins with token 4."""
    _, drawn = compiled(("deepseek-v4-flash", *CUSTOM["deepseek-v4-flash"]))
    pages = [page for side in drawn["sides"] for page in side["pages"]]
    assert {"row", "token"} <= {name for page in pages for _, name, _ in page["rows"]}


def places(pair: tuple[str, str, str]) -> Iterator[tuple[dict[str, Any], OraclePlane]]:
    """Every different page of either side: as it is drawn, and a plane of naive indexing that has it."""
    made, drawn = compiled(pair)
    for side, bound in zip(drawn["sides"], (made.prefill, made.decode), strict=True):
        seen = set()
        for worker in ends(bound):
            known = planes(bound, worker)
            for plane in side["plane_lists"][side["workers"][worker.number]["planes"]]:
                if plane["page"] not in seen:
                    seen.add(plane["page"])
                    yield side["pages"][plane["page"]], known[plane["name"]]


def ends(side: BoundSide) -> list[Any]:
    """The first and the last worker."""
    return [side.workers[0], *side.workers[1:][-1:]]


def painted(page: dict[str, Any]) -> Ints:
    """For every byte the number of its owner, -1 for padding; no byte is in two boxes."""
    rows = -(-page["bytes"] // page["row"])
    found = np.full((rows, page["row"]), -1, np.int16)
    for number, owner in enumerate(page["owners"]):
        for low, high, first, end in owner["boxes"]:
            assert (found[first:end, low:high] == -1).all(), (owner, low, high, first, end)
            found[first:end, low:high] = number
    assert (found.reshape(-1)[page["bytes"] :] == -1).all(), "boxes end with the page"
    return found.reshape(-1)[: page["bytes"]]


def said(owner: dict[str, Any]) -> tuple[str, int, int]:
    """The axis of an owner's part, its first and its last item."""
    axis, _, items = owner["part"].partition(" ")
    low, _, high = items.partition("–")
    return axis, int(low), int(high or low)


def check(page: dict[str, Any], plane: OraclePlane) -> None:
    """Every byte of the page is its owner's, as naive indexing has it."""
    found, rest = painted(page), np.ones(page["bytes"], bool)
    for field in plane.fields:
        for byte in range(field.tensor.size):
            rest[(field.offset + byte).reshape(-1)] = False
            check_field(page, field, found[field.offset + byte])
    assert (found[rest] == -1).all(), "what no tensor has is padding"


def check_field(page: dict[str, Any], field: PageField, numbers: Ints) -> None:
    """`numbers` has the owner of one byte of every element of a tensor."""
    mine = [number for number, owner in enumerate(page["owners"]) if owner["tensor"] == field.tensor.name]
    assert np.isin(np.unique(numbers), mine).all(), (field.tensor.name, "is not drawn, or as another tensor")
    parts = {number: said(page["owners"][number]) for number in mine if page["owners"][number]["part"]}
    split = any(extent > 1 for axis, extent in field.tensor.axes if axis in dict(field.tensor.split))
    assert len(parts) == (len(mine) if split else 0)
    for place, (axis, index) in enumerate(field.axes) if parts else ():
        if axis == next(iter(parts.values()))[0]:
            shape = [index.size if at == place else 1 for at in range(numbers.ndim)]
            low, high = (
                np.array([parts.get(n, ("", 0, 0))[end] for n in range(len(page["owners"]))]) for end in (1, 2)
            )
            item = index.reshape(shape)
            assert ((low[numbers] <= item) & (item <= high[numbers])).all(), (field.tensor.name, axis)


@pytest.mark.parametrize("pair", [*DRAWN, *PAIRS], ids=" ".join)
def test_every_byte_is_its_owners_as_naive_indexing_has_it(pair: tuple[str, str, str]) -> None:
    seen = 0
    for page, plane in places(pair):
        assert page["bytes"] == plane.page
        check(page, plane)
        seen += 1
    assert seen


@pytest.mark.parametrize("pair", [*DRAWN, *PAIRS], ids=" ".join)
def test_one_hue_is_one_part_on_both_sides(pair: tuple[str, str, str]) -> None:
    """A hue of a cache stands for one part of each split axis, and for nothing else beside it."""
    known: dict[tuple[str, int, str], set[str]] = {}
    for page in (page for side in compiled(pair)[1]["sides"] for page in side["pages"]):
        for owner in page["owners"]:
            axis = said(owner)[0] if owner["part"] else ""
            known.setdefault((page["cache"], owner["hue"], axis), set()).add(owner["part"])
    assert all(len(parts) == 1 for parts in known.values()), known
    split = {(name, hue) for name, hue, axis in known if axis}
    assert not split & {(name, hue) for name, hue, axis in known if not axis}


def test_two_heads_of_hundreds_of_tokens_are_two_colours() -> None:
    """Both heads of a hybrid's page, tokens first, whose cells are too many to be drawn one by one."""
    _, drawn = compiled(("qwen3-next-80b", "tp=2", "tp=1,order=nhd"))
    page = next(page for page in drawn["sides"][1]["pages"] if page["cache"] == "attention")
    assert [(owner["tensor"], owner["part"], owner["boxes"]) for owner in page["owners"]] == [
        ("k", "head 0", [[0, 512, 0, 544]]),
        ("k", "head 1", [[1024, 1536, 0, 544]]),
        ("v", "head 0", [[512, 1024, 0, 544]]),
        ("v", "head 1", [[1536, 2048, 0, 544]]),
    ]
    assert [label[2:] for label in page["heads"]] == [["head", 0], ["head", 1]]


def starts(cells: dict[str, Any]) -> Iterator[int]:
    for turns in product(*(range(count) for count, _ in cells["loops"])):
        yield cells["offset"] + sum(turn * step for turn, (_, step) in zip(turns, cells["loops"], strict=True))


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_the_pieces_to_point_at_are_all_of_the_tensors(pair: tuple[str, str, str]) -> None:
    for page, _ in places(pair):
        found = np.zeros(page["bytes"], np.int64)
        for cells in page["cells"]:
            for low in starts(cells):
                found[low : low + cells["bytes"]] += 1
        assert np.array_equal(found, (painted(page) >= 0).astype(np.int64))


@pytest.mark.parametrize("pair", DRAWN, ids=" ".join)
def test_few_boxes_are_drawn(pair: tuple[str, str, str]) -> None:
    for page in (page for side in compiled(pair)[1]["sides"] for page in side["pages"]):
        assert sum(len(owner["boxes"]) for owner in page["owners"]) <= 1024
        assert len(page["rows"]) <= 100


def test_rows_are_turns_of_a_loop_where_they_can_be() -> None:
    _, drawn = compiled(("llama-3.1-8b", "tp=4", "tp=2,order=nhd"))
    prefill, decode = (side["pages"][0] for side in drawn["sides"])
    assert prefill["row"] == 8192, "a row is a head"
    assert decode["row"] == 2048, "a row is a token"
    assert prefill["rows"] == [[0, "head", 0], [1, "head", 1]]
    assert decode["rows"][-1] == [15, "token", 15]
