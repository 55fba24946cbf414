"""Keys that rules list without reading them: a misspelt one has no effect, so `check` warns of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.paths import ROOT

from kvplan.cli.main import main

MODEL = """kvplan: 1
model: mine
title: Mine
match: {{architectures: LlamaForCausalLM}}
dtype: bf16
layers: 2
caches: {{attention: {{kind: gqa, layers: all, heads: 8, dim: 128}}}}
config: {{{rules}}}
"""
RULE = "caches: {{a: {{kind: gqa, when: attends, heads: kv_heads, dim: head_dim, covers: [{}]}}}}"


def check(folder: Path, rules: str) -> Result:
    (folder / "mine.yaml").write_text(MODEL.format(rules=rules))
    return CliRunner().invoke(main, ["check", str(folder / "mine.yaml")])


@pytest.mark.parametrize(
    ("rules", "near"),
    [
        ("no_effect: num_key_value_head", "num_key_value_heads"),
        (RULE.format("attention_bias, slidding_window"), "sliding_window"),
        ("no_effect: [attention_bias, attn_temperature]", ""),
        ("no_effect: num_key_value_head*", ""),
        (RULE.format("sliding_window"), ""),
    ],
)
def test_a_misspelt_key_that_rules_list_is_a_warning(rules: str, near: str, tmp_path: Path) -> None:
    said = check(tmp_path, rules)
    assert (said.exit_code, "W007" in said.output) == (0, bool(near)), said.output
    assert f"is spelled almost like `{near}`" in said.output or not near


def test_the_old_name_of_no_effect_is_answered_with_the_new_one(tmp_path: Path) -> None:
    said = check(tmp_path, "aside: attention_bias")
    assert (said.exit_code, "unknown key 'aside' in config" in said.output) == (2, True)
    assert "no_effect" in said.output


def test_shipped_files_list_no_misspelt_key() -> None:
    folders = [str(ROOT / "layouts" / name) for name in ("kinds", "models")]
    assert "W007" not in CliRunner().invoke(main, ["check", *folders]).output
