"""Sides with equal placements get different digests if one must not be used for the other."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair, side_of
from kvplan.compiler.bind.bind import bind
from kvplan.dsl.library import load
from kvplan.plan.needs import Needs
from kvplan.plan.types import Plan

MODEL = """kvplan: 1
model: {name}
title: Windows
dtype: bf16
query_heads: 8
layers: 2
caches:
  a: {{kind: gqa, layers: all, heads: 4, dim: 8{more}}}
"""


def compiled(folder: Path, name: str, more: str, side: str) -> Plan:
    (folder / f"{name}.yaml").write_text(MODEL.format(name=name, more=more))
    return compile_pair(load((), (folder,)), name, side, side).plan


@pytest.mark.parametrize("side", ["tp=2", "engine=custom,tp=2", "engine=sglang,tp=2"])
@pytest.mark.parametrize("other", ["window: 64", "window: 16, sink: 4", "chunk: 16", ""])
def test_sides_that_need_other_tokens_are_other_sides(side: str, other: str, tmp_path: Path) -> None:
    """A plan is found by the digests of its sides: one of a shorter window would leave out what is needed."""
    first = compiled(tmp_path, "first", ", window: 16", side)
    second = compiled(tmp_path, "second", f", {other}" if other else "", side)
    assert first.model_digest == second.model_digest
    assert first.prefill.digest != second.prefill.digest
    assert first.decode.digest != second.decode.digest
    assert first.decode.needs == (("a", Needs(keep=15)),)


def test_a_cache_that_may_be_skipped_makes_another_model(tmp_path: Path) -> None:
    """Its plan may leave the cache out, which the other model's must not."""
    optional = compiled(tmp_path, "first", ", optional: true", "tp=2")
    needed = compiled(tmp_path, "second", "", "tp=2")
    assert optional.prefill.digest == needed.prefill.digest
    assert optional.model_digest != needed.model_digest


def test_engines_with_and_without_an_optional_cache_are_of_one_model(tmp_path: Path) -> None:
    """Each says which model it is before it knows the other: drafts may run on one of them, or on both."""
    draft = "  b: {kind: gqa, layers: all, heads: 4, dim: 8, optional: true, when: draft_tokens > 0}\n"
    (tmp_path / "drafted.yaml").write_text(MODEL.format(name="drafted", more="") + draft)
    library = load((), (tmp_path,))
    sides = "tp=2", "tp=1,draft_tokens=2"
    found = {one: side_of(bind(library, library.model("drafted"), one)) for one in sides}
    [digest] = {digest for _, digest in found.values()}
    for prefill, decode in product(sides, sides):
        plan = compile_pair(library, "drafted", prefill, decode).plan
        assert (plan.model_digest, plan.skipped) == (digest, ("b",) if prefill != decode else ())
        assert (plan.prefill.digest, plan.decode.digest) == (found[prefill][0].digest, found[decode][0].digest)
