"""Groups, blocks, padding and strides of made-up models, against what the planner of vLLM 0.33 answered.

tests/fixtures/planned/make.py wrote the cases, where vLLM is installed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from tests.paths import FIXTURES

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.tree import BodyLoop, PagedRegion
from kvplan.dsl.library import Library, load

CASES: list[dict[str, Any]] = json.loads((FIXTURES / "planned/cases.json").read_text())
ANSWERED = [n for n, case in enumerate(CASES) if "groups" in case]
# Windows of different pages that do not come in a pattern: the planner loses layers where kvplan cuts page by page.
LOST = ("StopIteration", "AssertionError: KV cache groups miss layers")
REFUSED = [n for n, case in enumerate(CASES) if "refused" in case and not case["refused"].startswith(LOST)]
# The planner was asked with the same sizes for all caches, whatever the real kernels of an indexer take.
PLANNED = "kvplan: 1\nengine: planned\nextends: vllm\nkernels: {indexer: multiples(16)}\n"
INSIDE = ("BLHNC", "BLNHC")


@dataclass(frozen=True)
class Layer:
    """One layer as the planner placed it."""

    cache: str
    layer: int
    tokens: int
    page: int
    stride: int
    offset: int


def layers(case: dict[str, Any]) -> list[list[Layer]]:
    groups = []
    for group in case["groups"]:
        names = [(*name.split("."), *rest) for name, *rest in group]
        groups.append([Layer(cache, int(layer), *rest) for cache, layer, *rest in names])
    return groups


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("planned") / "models"
    folder.mkdir()
    for number, case in enumerate(CASES):
        head = {"kvplan": 1, "model": f"made-up-{number}", "title": "Made up", "dtype": "bf16", "query_heads": 64}
        (folder / f"made-up-{number}.yaml").write_text(json.dumps({**head, **case["model"]}))
    engines = folder.parent / "engines"
    engines.mkdir()
    (engines / "planned.yaml").write_text(PLANNED)
    return load([], [folder.parent])


def bound(library: Library, number: int) -> BoundSide:
    case = CASES[number]
    sizes = "" if case["sizes"].startswith("multiples") else f",kernel_sizes={case['sizes']}"
    block = max(case["block"], 32 if case["sizes"] == "32+64" else 16)
    text = f"engine=planned,tp={case['tp']},order={case['order']},block={block}{sizes}"
    return bind(library, library.model(f"made-up-{number}"), text)


@pytest.mark.parametrize("number", ANSWERED)
def test_caches_lie_where_the_planner_puts_them(library: Library, number: int) -> None:
    case = CASES[number]
    if unsplittable(case):
        with pytest.raises(Refused, match="cannot be split into kernel blocks"):
            bound(library, number)
        return
    if unreadable(case):
        with pytest.raises(Refused, match="kernels for its keys take pages of"):
            bound(library, number)
        return
    side = bound(library, number)
    wanted = layers(case)
    assert {frozenset(g.members) for g in side.groups} == {frozenset((a.cache, a.layer) for a in g) for g in wanted}
    caches = {cache.name: cache for cache in side.caches}
    for one in (layer for group in wanted for layer in group):
        cache = caches[one.cache]
        assert cache.store != "tokens" or cache.tokens == one.tokens, one
        assert cache.padded == one.page, one
    check_strides(side, case["order"], wanted)


def unsplittable(case: dict[str, Any]) -> bool:
    """Whether a padded page has to be split for the kernel, which vLLM's allocation refuses, after its planner."""
    sizes = [int(size) for size in case["sizes"].split("+")] if "+" in case["sizes"] else []
    if case["order"] in INSIDE or not sizes:
        return False
    heads = {name: max(1, c["heads"] // case["tp"]) * c["dim"] * 4 for name, c in caches_of(case, "gqa").items()}
    placed = [one for group in layers(case) for one in group if one.cache in heads]
    return any(one.page > one.tokens * heads[one.cache] and one.tokens not in sizes for one in placed)


def unreadable(case: dict[str, Any]) -> bool:
    """Whether a page of keys is a whole block of a size that the indexer's kernels do not take: no planner looks."""
    sizes = [int(size) for size in case["sizes"].split("+")] if "+" in case["sizes"] else []
    if case["order"] not in INSIDE or not sizes:
        return False
    keys = caches_of(case, "indexer")
    return any(one.tokens not in sizes for group in layers(case) for one in group if one.cache in keys)


def caches_of(case: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: cache for name, cache in case["model"]["caches"].items() if cache["kind"] == kind}


def check_strides(side: BoundSide, order: str, wanted: list[list[Layer]]) -> None:
    units = {(unit.cache, frozenset(unit.layers)): unit for unit in place(side, side.workers[0])}
    for group in wanted:
        for name in {one.cache for one in group}:
            mine = [one for one in group if one.cache == name]
            unit = units[name, frozenset(one.layer for one in mine)]
            (part,) = unit.parts
            ratio = next(g.ratio for g in side.groups if g.name == unit.group)
            assert {part.stride * ratio} == {one.stride for one in mine}
            if order in INSIDE and len(mine) > 1 and not part.outer:
                steps = [b.offset - a.offset for a, b in pairwise(mine)]
                assert {step_of_layers(part)} == set(steps)


def step_of_layers(part: PagedRegion) -> int:
    (loop,) = (node for node in part.body if isinstance(node, BodyLoop) and node.axis == "layer")
    return loop.step


@pytest.mark.parametrize("number", REFUSED)
def test_what_the_planner_cannot_do_is_refused(library: Library, number: int) -> None:
    with pytest.raises(Refused) as caught:
        bound(library, number)
    assert caught.value.code in ("C138", "C118")
