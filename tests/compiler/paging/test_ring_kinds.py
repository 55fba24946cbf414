"""The shipped kinds that are rings: as large as their sources say, whatever is drafted, and movable."""

from __future__ import annotations

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.dsl.library import Library, load

ENGINE = """kvplan: 1
engine: rings
extends: custom
title: A ring is one block
derive: {tokens: ring if ring else block}
"""
MODEL = """kvplan: 1
model: compressing
title: Three caches of tokens that are not compressed yet
dtype: bf16
query_heads: 4
layers: 4
caches:
  keys:   {kind: ring-keys, layers: [0, 2], dim: 6, ratio: 4, positions: 3}
  scores: {kind: ring-scores, layers: [1, 2, 3], dim: 4}
  tail:   {kind: ring-tail, layers: all, dim: 3, pool: 6}
"""
ORDERS = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("layouts")
    for name, text in {"rings": ENGINE, "compressing": MODEL}.items():
        (folder / f"{name}.yaml").write_text(text)
    return load(sorted(folder.iterdir()))


def power(number: int) -> int:
    """The least power of two that is not below `number`."""
    found = 1
    while found < number:
        found *= 2
    return found


@pytest.mark.parametrize("drafts", [0, 1, 2, 5, 6, 7, 14, 15, 30, 31, 62, 63, 126, 255, 1000])
def test_sizes(library: Library, drafts: int) -> None:
    side = bind(library, library.model("compressing"), f"engine=rings,draft_tokens={drafts}")
    rings = {cache.name: cache.ring for cache in side.caches}
    assert rings == {
        "keys": (4 + drafts + 3) // 4 * 4,
        "scores": max(8, power(drafts + 2)),
        "tail": 6 * power((6 + drafts + 5) // 6),
    }
    assert all(cache.tokens == cache.kernel == cache.ring for cache in side.caches)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order(library: Library, order: str) -> None:
    made = compile_pair(library, "compressing", f"engine=rings,order={order}", "engine=rings,tp=2,draft_tokens=9")
    for end in (23, 35):
        request = sample_request(made.prefill, made.decode, (0, end), end)
        report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
        assert report.right, report.text()
        assert report.bytes


def test_where_positions_lie(library: Library) -> None:
    """Six elements of 2 bytes, up to a multiple of 8 bytes, then three numbers of 8; without positions no padding."""
    side = bind(library, library.model("compressing"), "engine=rings")
    assert [t.name for c in side.caches for t in c.tensors] == ["k", "position", "kv", "score", "k", "gate"]
    pages = compile_pair(library, "compressing", "engine=rings", "engine=rings").plan.decode.workers[0].planes
    assert {plane.cache: plane.page_bytes for plane in pages} == {"keys": 4 * 40, "scores": 8 * 32, "tail": 6 * 12}
