"""Caches of one group have one block table: blocks of the same tokens and the same ring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.random_sides.sides import cache, tensor

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import Refused
from kvplan.compiler.paging.pool import PACKED, PooledCache, pooled, reach
from kvplan.dsl.library import load
from kvplan.plan.types import Needs

WINDOW = replace(
    cache("layer { block { token { k } } }", tensor("k", 2, token=0), name="a", layers=(0, 1), kernel=16),
    needs=Needs(keep=15),
)


def entry(made: BoundCache, page: int) -> PooledCache:
    return PooledCache(made, 16, page)


def test_a_ring_shares_no_table_with_what_is_paged() -> None:
    ring = replace(WINDOW, name="b", ring=16)
    assert reach(entry(WINDOW, 32)) != reach(entry(ring, 32))
    assert pooled([entry(WINDOW, 32), entry(ring, 48)], inside=True).way == PACKED


@pytest.mark.parametrize("name", ["few", "indexer", "many"])
def test_caches_of_one_table_have_the_same_kernel_blocks(name: str) -> None:
    library = load()
    model, side = library.model("deepseek-v4-flash"), "tp=1,order=BLHNC,block=256"
    assert "few+indexer+many" in {group.name for group in bind(library, model, side).groups}
    with pytest.raises(Refused, match="few and indexer and many would share a block table") as caught:
        bind(library, model, f"{side},kernel_block.{name}=128")
    assert caught.value.code == "C114"


@pytest.mark.parametrize("rule", ["inside: order", "rigid: kind"])
def test_a_word_is_no_condition(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "worded.yaml"
    path.write_text(f"kvplan: 1\nengine: worded\ntitle: Words\nextends: vllm\ngroups: {{{rule}}}\n")
    library = load([path])
    with pytest.raises(Refused, match="not as a condition") as caught:
        bind(library, library.model("gemma-3-27b"), "engine=worded,tp=1")
    assert caught.value.code == "C114"
