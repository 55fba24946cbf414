"""Layers that store the same lie together inside a block, unless an engine tells them apart: then cache by cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.place import place
from kvplan.dsl.library import load

SHARED = """kvplan: 1
model: shared
title: Every other layer uses what the one before chose
dtype: bf16
query_heads: 8
layers: 4
caches:
  indexer: {{kind: indexer, layers: layer % 2 == 0, dim: 128}}
  attention: {{kind: mla, layers: layer % 2 == 0, latent: 512, rope: 64}}
  attention-2: {{kind: mla, layers: layer % 2 == 1, latent: 512, rope: 64{}}}
"""


def bound(tmp_path: Path, more: str, order: str) -> BoundSide:
    (tmp_path / "shared.yaml").write_text(SHARED.format(more))
    library = load([tmp_path / "shared.yaml"])
    return bind(library, library.model("shared"), f"tp=1,block=64,order={order}")


@pytest.mark.parametrize("order", ["BLHNC", "BLNHC"])
def test_layers_that_are_told_apart_follow_those_before(tmp_path: Path, order: str) -> None:
    side = bound(tmp_path, ", tell_apart: 1", order)
    units = place(side, side.workers[0])
    starts = {unit.cache: unit.first for unit in units}
    # vLLM 0.33 orders them so: the layers with an indexer, then the others; a block holds both.
    assert starts["attention"] < starts["attention-2"]


def test_layers_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        Refused, match=r"C110: shared on vllm: with order=BLNHC layers that store the same lie side by side"
    ):
        bound(tmp_path, "", "BLNHC")


def test_orders_with_layers_outside_blocks_do_not_ask(tmp_path: Path) -> None:
    assert {cache.name for cache in bound(tmp_path, "", "LBNHC").caches} == {"indexer", "attention", "attention-2"}
