"""A side's `groups` names block tables: it moves no byte, and what is one table by nature may share ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.requests import ask, block_table

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import CompileError
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.tree import BodyLoop
from kvplan.dsl.library import Library, load
from kvplan.plan.block_tables import check_repeats
from kvplan.plan.errors import BadRequestError
from kvplan.plan.types import Group

MODELS = ("gemma-4-26b", "gemma-3-27b", "deepseek-v4-flash", "nemotron-3-nano-30b", "gpt-oss-20b", "deepseek-v3.2")
ORDERS = ("LBHNC", "LBNHC", "BLHNC", "BLNHC")
TWO = """kvplan: 1
model: two
title: Two head counts in one group
dtype: bf16
query_heads: 8
layers: 3
caches:
  wide:   {kind: gqa, layers: [0], heads: 8, dim: 128}
  narrow: {kind: gqa, layers: [1], heads: 4, dim: 128}
  near:   {kind: gqa, layers: [2], heads: 8, dim: 128, window: 128}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    path: Path = tmp_path_factory.mktemp("named") / "two.yaml"
    path.write_text(TWO)
    return load([path])


def layers(side: BoundSide) -> dict[tuple[str, int, str | None], Any]:
    """The place of every layer of every part in its block: first byte, bytes of the page, bytes to the next block."""
    found = {}
    for unit in place(side, side.workers[0]):
        for part in unit.parts:
            step = sum(n.step for n in part.body if isinstance(n, BodyLoop) and n.axis == "layer")
            for number, layer in enumerate(unit.layers):
                found[unit.cache, layer, part.name] = number * step, step or part.page, part.stride
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", ["by_cache", "by_page"])
def test_no_byte_moves(library: Library, model: str, order: str, form: str) -> None:
    try:
        block = ",block=256" if "deepseek" in model else ""
        plain = bind(library, library.model(model), f"tp=1,order={order}{block}")
    except CompileError:
        return
    named = bind(library, library.model(model), f"{plain.key},groups={form}")
    assert layers(named) == layers(plain)
    assert named.caches == plain.caches


def test_with_layers_inside_blocks_a_cache_has_the_tables_that_the_engine_gives_it(library: Library) -> None:
    model, text = library.model("deepseek-v4-flash"), "order=BLHNC,block=256"
    plain, named = bind(library, model, text), bind(library, model, f"{text},groups=by_cache")
    parts = {(group.name, cache) for group in plain.groups for cache, _ in group.members}
    assert len(named.groups) == len(parts)
    assert all(len({cache for cache, _ in group.members}) == 1 for group in named.groups)
    assert {group.table for group in named.groups if group.name in ("few", "indexer", "many")} == {"few+indexer+many"}
    assert {group.table for group in named.groups if group.name.startswith("window")} == {""}


def test_an_id_that_two_names_of_one_table_share_is_no_fault(library: Library) -> None:
    made = compile_pair(library, "two", "order=BLHNC,groups=by_cache", "order=BLHNC")
    assert {g.name: (g.arena, g.table) for g in made.plan.prefill.groups} == {
        "wide": (0, "narrow+wide"), "narrow": (0, "narrow+wide"), "near": (0, "")
    }  # fmt: skip
    tables, near = block_table(0, [4, 11]), block_table(0, [6, 7])
    request = ask((0, 32), {"wide": tables, "narrow": tables, "near": near}, {"narrow+wide": tables, "near": near})
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()
    assert report.bytes


WIDE, NARROW, NEAR = (
    Group(name, "tokens", 16, 16, 1, 0, table=t) for name, t in zip("abc", ("t", "t", ""), strict=True)
)


@pytest.mark.parametrize(
    ("a", "b", "c", "twice"),
    [
        ((4, 11), (4, 11), (1, 2), None),
        ((4, 11), (11, 4), (1, 2), None),
        ((4, 4), (5, 6), (1, 2), "'a'"),
        ((4, 11), (4, 11), (11, 2), "'a', 'b', 'c'"),
    ],
)
def test_what_is_named_twice(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], twice: str | None) -> None:
    tables = {name: block_table(0, ids) for name, ids in zip("abc", (a, b, c), strict=True)}
    if twice is None:
        check_repeats("decode", (WIDE, NARROW, NEAR), tables)
        return
    with pytest.raises(BadRequestError, match=f"is named twice, in {twice}:"):
        check_repeats("decode", (WIDE, NARROW, NEAR), tables)


def test_names_of_one_table_do_not_overlay_each_other() -> None:
    assert not WIDE.overlays(NARROW)
    assert not WIDE.overlays(WIDE)
    assert WIDE.overlays(NEAR)
    assert NEAR.overlays(WIDE)
