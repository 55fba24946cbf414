"""What is drawn of a page is what naive indexing finds there, element by element, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.oracle import OraclePlane, PageField, planes
from kvplan.compiler.explain.picture.describe_picture import picture
from kvplan.dsl.library import Library, load

# Orders, states, latents, quantised records, layers inside a block, tiles, uneven shares, turns of the tokens.
PAIRS = [
    ("llama-3.1-8b", "tp=4", "tp=2,order=nhd"),
    ("llama-3.1-8b", "tp=4", "tp=4,order=BLHNC"),
    ("llama-3.1-8b", "tp=1,pp=2", "engine=custom,tp=4,copies=round_robin,order=shuffled"),
    ("llama-3.1-8b", "engine=custom,tp=3,share.attention.head=5+3+0", "engine=vllm-legacy,tp=2"),
    ("nemotron-3-nano-30b", "tp=4", "tp=1"),
    ("qwen3-next-80b", "tp=2", "tp=1,conv=SD"),
    ("deepseek-v3", "tp=8", "tp=8,dcp=8"),
    ("deepseek-v3", "tp=4,kv_dtype=fp8_ds_mla", "tp=2,kv_dtype=fp8_ds_mla"),
    ("deepseek-v4-flash", "engine=custom,tp=2,block=256", "engine=custom,tp=1,block=256"),
    ("gemma-3-27b", "tp=2", "tp=4"),
]


@cache
def library() -> Library:
    return load()


@cache
def compiled(pair: tuple[str, str, str]) -> tuple[Compiled, Any]:
    made = compile_pair(library(), *pair, {})
    return made, picture(made.plan, made.facts)


def places(pair: tuple[str, str, str]) -> Iterator[tuple[dict[str, Any], OraclePlane, dict[str, Any]]]:
    """Every unlike page of either side: as it is drawn, a plane of naive indexing that has it, its worker's shares."""
    made, drawn = compiled(pair)
    for side, bound in zip(drawn["sides"], (made.prefill, made.decode), strict=True):
        seen = set()
        for worker in ends(bound):
            known = planes(bound, worker)
            owner = side["workers"][worker.number]
            for plane in side["plane_lists"][owner["planes"]]:
                if (worker.number, plane["page"]) in seen:
                    continue
                seen.add((worker.number, plane["page"]))
                page = side["pages"][plane["page"]]
                yield page, known[plane["name"]], {**owner["holds"].get(page["cache"], {}), **plane["at"]}


def ends(side: BoundSide) -> list[Any]:
    """The first and the last worker."""
    return [side.workers[0], *side.workers[1:][-1:]]


def painted(page: dict[str, Any]) -> np.ndarray:
    """For every byte the number of the cells that have it, -1 for padding; no byte is in two cells."""
    found = np.full(page["bytes"], -1)
    for number, cells in enumerate(page["cells"]):
        for low in starts(cells):
            assert (found[low : low + cells["bytes"]] == -1).all()
            found[low : low + cells["bytes"]] = number
    return found


def starts(cells: dict[str, Any]) -> Iterator[int]:
    for turns in product(*(range(count) for _, count, _, _ in cells["loops"])):
        yield cells["offset"] + sum(turn * loop[2] for turn, loop in zip(turns, cells["loops"], strict=True))


def covered(field: PageField) -> np.ndarray:
    """Every byte of a tensor of a page."""
    return np.add.outer(field.offset.reshape(-1), np.arange(field.tensor.size)).reshape(-1)


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_every_byte_is_in_a_cell_of_its_tensor_or_is_padding(pair: tuple[str, str, str]) -> None:
    seen = 0
    for page, plane, _ in places(pair):
        assert page["bytes"] == plane.page
        found, left = painted(page), np.ones(plane.page, bool)
        for field in plane.fields:
            bytes_ = covered(field)
            left[bytes_] = False
            numbers = np.unique(found[bytes_]).tolist()
            assert all(n >= 0 and field.tensor.name in page["cells"][n]["tensors"] for n in numbers)
        assert (found[left] == -1).all()
        seen += 1
    assert seen


def indices(cells: dict[str, Any], offset: int, axis: str) -> tuple[int, int] | None:
    """What a cell's place says of an axis at a byte: first local index and how many; None where it says nothing."""
    rest, first, many = offset - cells["offset"], 0, 0
    for name, count, step, each in cells["loops"]:
        turn = min(rest // step, count - 1)
        rest -= turn * step
        if name.partition("/")[0] == axis:
            weight = int(name.partition("/")[2] or 1)
            first, many = first + turn * each * weight, each * weight
    return (first, many) if many else None


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_a_cell_is_of_the_items_that_naive_indexing_has_there(pair: tuple[str, str, str]) -> None:
    said = 0
    for page, plane, holds in places(pair):
        found = painted(page)
        for field in plane.fields:
            said += sum(agree(page, found, field, holds, axis) for axis in range(1, len(field.axes)))
    assert said


def agree(page: dict[str, Any], found: np.ndarray, field: PageField, holds: dict[str, Any], axis: int) -> bool:
    """Compare one axis of a tensor at its first, its last and some more elements; whether the cells say anything."""
    name, numbers = field.axes[axis]
    held = holds.get(name, 0)
    start = held[0] if isinstance(held, list) else held
    picked = np.unique(np.linspace(0, field.offset.size - 1, 400).astype(int))
    told = False
    for flat in picked.tolist():
        offset = int(field.offset.reshape(-1)[flat])
        item = int(numbers[np.unravel_index(flat, field.offset.shape)[axis]])
        cells = page["cells"][found[offset]]
        if (where := indices(cells, offset, name)) is None or held_in_plane(cells, name, holds):
            continue
        told = True
        assert where[0] <= item - start < where[0] + where[1], (page["cache"], field.tensor.name, name, item)
    return told


def held_in_plane(cells: dict[str, Any], name: str, holds: dict[str, Any]) -> bool:
    """Whether tiles of an axis lie partly outside the page, so that a cell does not say all of it."""
    return name == "token" and any(loop[0].startswith("token/") for loop in cells["loops"])


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_one_hue_is_one_part_of_the_split_axis_on_both_sides(pair: tuple[str, str, str]) -> None:
    _, drawn = compiled(pair)
    colours: dict[tuple[str, str], set[tuple[object, ...]]] = {}
    for page in (page for side in drawn["sides"] for page in side["pages"]):
        for cells in page["cells"]:
            colour = cells["colour"]
            colours.setdefault((page["cache"], cells["tensors"][0]), set()).add((colour["axis"], colour["extent"]))
    assert all(len(known) == 1 for known in colours.values())


def test_thousands_of_tokens_are_few_cells() -> None:
    _, drawn = compiled(("nemotron-3-nano-30b", "tp=4", "tp=1"))
    for page in (page for side in drawn["sides"] for page in side["pages"]):
        assert sum(len(list(starts(cells))) for cells in page["cells"]) <= 2048


def test_rows_are_turns_of_a_loop_where_they_can_be() -> None:
    _, drawn = compiled(("llama-3.1-8b", "tp=4", "tp=2,order=nhd"))
    prefill, decode = (side["pages"][0] for side in drawn["sides"])
    assert prefill["row"] == 8192, "a row is a head"
    assert decode["row"] == 2048, "a row is a token"
