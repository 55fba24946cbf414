"""Compile: what a plan is called and how it says it was made."""

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import BadInput
from kvplan.dsl.library import load

MINE = """kvplan: 1
model: mine
title: Mine
dtype: bf16
query_heads: 32
layers: 32
caches: {attention: {kind: gqa, layers: all, heads: 8, dim: 128}}
"""


def test_plans_are_named_by_what_is_not_default() -> None:
    made = compile_pair(load(), "llama-3.1-8b", "tp=4,order=hnd", "order=nhd,tp=2", {"elect": "spread"})
    assert made.path == "llama_3_1_8b/p_tp4__d_tp2_lbnhc__elect_spread.py"
    assert "kvplan compile llama-3.1-8b --prefill tp=4 --decode tp=2,order=LBNHC --elect spread\n" in made.text


def test_a_users_own_layouts_are_part_of_the_command(tmp_path: Path) -> None:
    mine = tmp_path / "models" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text(MINE)
    made = compile_pair(load(layouts=[tmp_path]), "mine", "tp=2", "tp=1")
    assert "kvplan compile mine --prefill tp=2 --decode tp=1 --layouts .\n" in made.text


def test_names_of_models_do_not_count_in_digests(tmp_path: Path) -> None:
    mine = tmp_path / "models" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text("# a note\n" + MINE)
    one, other = (compile_pair(load(layouts=[tmp_path]), name, "tp=2", "tp=1") for name in ("mine", "llama-3.1-8b"))
    assert one.plan.digest == other.plan.digest
    assert one.plan.prefill.digest == other.plan.prefill.digest


@pytest.mark.parametrize("options", [{"elct": "one"}, {"elect": "two"}, {"strategy": "staged"}])
def test_unknown_options_are_named(options: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="S015"):
        compile_pair(load(), "llama-3.1-8b", "tp=2", "tp=1", options)
