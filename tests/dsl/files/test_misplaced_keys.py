"""Hints at keys of a model that belong elsewhere, or that have another name there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.dsl.check import check, doubts

MODEL = """kvplan: 1
model: mine
title: Mine
dtype: bf16
query_heads: 24
layers: 6
drafts: 1
caches:
  full: {kind: gqa, layers: layer % 3 == 2, heads: 8, dim: 128}
  rest: {kind: mla, layers: layer % 3 != 2, latent: 512, rope: 64}
  draft: {kind: gqa, layers: drafts, heads: 8, dim: 128, when: draft_tokens > 0}
"""


def found(tmp_path: Path, old: str, new: str) -> list[tuple[str, str]]:
    """The errors and warnings of the model with `new` in place of `old`: the message, and what to do."""
    path = tmp_path / "mine.yaml"
    assert MODEL.replace(old, new) != MODEL
    path.write_text(MODEL.replace(old, new))
    return [(each.message, each.help) for each in (*check([path]), *doubts([path]))]


@pytest.mark.parametrize(
    ("old", "new", "key", "hint"),
    [
        ("dtype: bf16", "dtype: bf16\ntp: 4", "tp", "each side says it: tp=…"),
        ("dtype: bf16", "dtype: bf16\nblock_size: 16", "block_size", "each side says it: block=…"),
        ("dtype: bf16", "dtype: bf16\nkv_dtype: fp8", "kv_dtype", "each side says it: kv_dtype=…"),
        ("dtype: bf16", "dtype: bf16\nmore: {kind: gqa, layers: all}", "more", "write it under caches"),
        ("dtype: bf16", "dtype: bf16\nwindow: 4096", "window", "write it in a cache, under caches"),
        ("dtype: bf16", "dtype: bf16\nneeds: all", "needs", "write it in a cache, under caches"),
        ("drafts: 1", "num_nextn_predict_layers: 1", "num_nextn_predict_layers", "did you mean 'drafts'?"),
        ("dtype: bf16", "dtype: bf16\nmodel_type: llama", "model_type", "write checkpoint: {model_type: …}"),
        ("dim: 128}", "dim: 128, query_heads: 24}", "query_heads", "write it beside caches: it is for the whole model"),
        ("latent: 512", "latent: 512, kv_lora_rank: 512", "kv_lora_rank", "did you mean 'latent'?"),
        ("rope: 64", "rope: 64, tp: 2", "tp", "each side says it: tp=…"),
        ("rope: 64", "rope: 64, heads: 1", "heads", "leave it out: every worker has all of a cache of kind 'mla'"),
        ("dim: 128}", "head_dim: 128}", "head_dim", "did you mean 'dim'?"),
        (
            "kind: mla, layers: layer % 3 != 2, latent: 512, rope: 64",
            "kind: mamba2, layers: layer % 3 != 2, key_heads: 16, value_heads: 32, key_dim: 128, conv: 4",
            "key_dim",
            "these are keys of kind 'gdn'",
        ),
        (
            "kind: mla, layers: layer % 3 != 2, latent: 512, rope: 64",
            "kind: gdn, layers: all, key_heads: 16, value_heads: 32, key_dim: 128, conv: 4, mamba_ssm_dtype: f32",
            "mamba_ssm_dtype",
            "did you mean 'ssm_dtype'?",
        ),
        (
            "dim: 128}",
            "dim: 128, latent: 512}",
            "latent",
            "caches of kind 'compressed-latent', 'latent-window' or 'mla' have it",
        ),
    ],
)
def test_an_unknown_key_is_led_to_its_place_or_name(tmp_path: Path, old: str, new: str, key: str, hint: str) -> None:
    said = [help for message, help in found(tmp_path, old, new) if f"unknown key '{key}'" in message]
    assert said == [hint]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("dtype: bf16", "dtype: bf16\nH_cycles: 2", "H_cycles"),
        ("dtype: bf16", "dtype: bf16\ntransf_decoder: 2", "transf_decoder"),
        ("dtype: bf16", "dtype: bf16\nlatent: 2", "latent"),
        ("heads: 8, dim: 128}", "heads: 8, dim: 128, conv: 4}", "conv"),
    ],
)
def test_a_key_is_not_led_to_what_only_uses_it(tmp_path: Path, old: str, new: str, key: str) -> None:
    """A rule that reads a key among others does not make it another name; options of no real engine help nobody."""
    said = [help for message, help in found(tmp_path, old, new) if f"unknown key '{key}'" in message]
    assert said
    assert not any("did you mean 'layers'" in help or "each side" in help for help in said)


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("draft_tokens >", "num_speculative_tokens >", "unknown name 'num_speculative_tokens'", "mean 'draft_tokens'?"),
        ("layer % 3 == 2", '"[2, 5]"', "layers are a list, not '[2, 5]'", "take out the quotes"),
        ("draft_tokens >", "tp >", "unknown name 'tp'", "conditions cannot use 'tp'"),
        ("layer % 3 == 2", '"range(2, 6, 3)"', "unknown function 'range'", "write a condition: layer >= 2 and layer %"),
        ("dim: 128}", "dim: 128, dtype: float}", "'float' is", "did you mean 'float32'?"),
        ("dim: 128}", "dim: 128, window: null}", "unknown name 'null'", "if it is left out, it is 0"),
        ("dim: 128}", "dim: 128, window: false}", "'window' is a number, not 'false'", "if it is left out, it is 0"),
        ("dim: 128}", "dim: 128, window: -1}", "cache 'full': 'window' is -1", "give a whole number of tokens, or 0"),
        ("heads: 8, dim: 128}", "heads: 128, dim: 8}", "`heads` and `dim` may be swapped", "correct it"),
    ],
)
def test_a_wrong_value_is_led_to_the_right_one(tmp_path: Path, old: str, new: str, message: str, hint: str) -> None:
    said = [help for what, help in found(tmp_path, old, new) if message in what]
    assert said
    assert all(hint in help for help in said)


def test_a_list_of_caches_is_told_that_each_has_a_name(tmp_path: Path) -> None:
    head, caches = MODEL.split("caches:\n")
    path = tmp_path / "mine.yaml"
    path.write_text(f"{head}caches:\n" + "".join(f"  - {{{line.partition('{')[2]}\n" for line in caches.splitlines()))
    assert "write a name before each: NAME: …" in [each.help for each in check([path])]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("other", "rename the file to other.yaml, or write model: mine"), ("My own", "write model: mine")],
)
def test_a_file_is_renamed_only_to_a_name_that_needs_no_quotes(tmp_path: Path, name: str, hint: str) -> None:
    assert [help for _, help in found(tmp_path, "model: mine", f"model: {name}")] == [hint]
