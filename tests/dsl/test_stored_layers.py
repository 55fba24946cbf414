"""Layers that store nothing: a model file declares them, or there is a warning; drafts and optional caches count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.dsl.check import model_doubts
from kvplan.dsl.library import load
from kvplan.dsl.stored_layers import stored_layers

MODEL = """kvplan: 1
model: toy
title: Toy
dtype: bf16
layers: 40
{more}
caches:
  full: {{kind: gqa, layers: layer % 4 == 3, heads: 8, dim: 128}}
  windows: {{kind: gqa, layers: layer % 4 {windows}, heads: 8, dim: 128, window: 512}}
{caches}"""
DRAFT = "  draft: {kind: gqa, layers: drafts, heads: 8, dim: 128, when: draft_tokens > 0, optional: true}\n"


def check(path: Path, more: str = "", windows: str = "!= 3", caches: str = "") -> tuple[int, str]:
    (path / "toy.yaml").write_text(MODEL.format(more=more, windows=windows, caches=caches))
    done = CliRunner().invoke(main, ["check", str(path / "toy.yaml")])
    return done.exit_code, done.output


def test_what_layers_store_is_said(tmp_path: Path) -> None:
    code, said = check(tmp_path)
    assert (code, "W004" in said) == (0, False)
    assert "toy: layers: 40 (10 store full, 30 store windows)\n" in said


def test_layers_that_a_slip_leaves_out_are_a_warning_everywhere(tmp_path: Path) -> None:
    code, said = check(tmp_path, windows="== 2")
    assert code == 0
    assert "warning[W004]: 20 of 40 layers store nothing, and no_cache does not list them: 0-1, 4-5" in said
    assert "10 store full, 10 store windows, 20 store nothing, not listed in no_cache)" in said
    plan = compile_pair(load([tmp_path / "toy.yaml"]), "toy", "tp=2", "tp=1")
    header = " ".join(plan.text.split())
    assert "20 store nothing, not listed in no_cache). Strategy:" in header
    assert "In doubt: 20 of 40 layers store nothing" in header
    explained = CliRunner().invoke(main, ["explain", str(tmp_path / "toy.yaml")]).output
    assert "20 store nothing, not listed in no_cache)" in explained


def test_declared_layers_are_no_warning(tmp_path: Path) -> None:
    code, said = check(
        tmp_path, more="no_cache: {mlp: layer % 8 < 2, shared: layer % 8 > 3 and layer % 8 < 6}", windows="== 2"
    )
    assert (code, "W004" in said) == (0, False)
    assert "20 store nothing)\n" in said


@pytest.mark.parametrize("more", ["{mlp: layer % 4 < 3}", "{mlp: [0, 1, 3]}", "{shared: all}"])
def test_a_layer_has_a_cache_or_is_declared_to_have_none(tmp_path: Path, more: str) -> None:
    code, said = check(tmp_path, more=f"no_cache: {more}", windows="== 2")
    assert (code, "error[K012]: no_cache and cache '" in said) == (2, True)


def test_why_a_layer_has_no_cache_is_said_once(tmp_path: Path) -> None:
    """An engine may allocate memory for layers that share another's cache, so a bare list of layers does not do."""
    code, said = check(tmp_path, more="no_cache: layer % 4 < 2", windows="== 2")
    assert (code, "error[K003]: no_cache must be a mapping" in said) == (2, True)
    assert "= its keys are mlp and shared" in said
    code, said = check(tmp_path, more="no_cache: {mlp: [0, 1], shared: [1, 4, 5]}", windows="== 2")
    assert (code, "error[K012]: mlp and shared of no_cache both have layer 1" in said) == (2, True)


def test_draft_layers_count_where_they_are_stored(tmp_path: Path) -> None:
    code, said = check(tmp_path, more="drafts: 1", caches=DRAFT)
    assert (code, "W004" in said) == (0, False)
    assert "layers: 40 and 1 draft (10 store full, 30 store windows, 1 stores draft)\n" in said
    model = load([tmp_path / "toy.yaml"]).model("toy")
    assert stored_layers(model, {"full", "windows"}) == "40 (10 store full, 30 store windows)"
    said = check(tmp_path, more="drafts: 1")[1]
    assert "warning[W004]: 1 of 1 draft layers stores nothing: 40\n" in said
    assert "= add a cache with `layers: drafts`, or take out `drafts`" in said


def test_a_misspelt_word_for_layers_is_answered_with_the_nearest(tmp_path: Path) -> None:
    code, said = check(tmp_path, more="drafts: 1", caches=DRAFT.replace("layers: drafts", "layers: draft"))
    assert (code, "did you mean 'drafts'?" in said) == (2, True)


def test_a_draft_that_every_side_stores_is_a_warning_everywhere(tmp_path: Path) -> None:
    code, said = check(tmp_path, more="drafts: 1", caches=DRAFT.replace(", when: draft_tokens > 0", ""))
    sentence = "cache 'draft' of draft layers has no `when`: sides that do not draft store it, too"
    assert (code, f"warning[W006]: {sentence}" in said) == (0, True)
    assert "= write when: draft_tokens > 0" in said
    text = compile_pair(load([tmp_path / "toy.yaml"]), "toy", "tp=1", "tp=1").text
    assert f"In doubt: {sentence} (W006)" in " ".join(text.split())


@pytest.mark.parametrize(
    ("when", "slip"),
    [
        ("draft_tokens >= 0", "sides that do not draft store it, too"),
        ("draft_tokens == 0", "sides that do not draft store it, too"),
        ("draft_tokens > 1", "sides that draft one token do not store it"),
    ],
)
def test_a_draft_with_another_condition_is_a_warning(when: str, slip: str, tmp_path: Path) -> None:
    code, said = check(tmp_path, more="drafts: 1", caches=DRAFT.replace("draft_tokens > 0", when))
    assert (code, f"warning[W006]: cache 'draft' of draft layers has `when: {when}`: {slip}" in said) == (0, True), said


@pytest.mark.parametrize("when", ["draft_tokens > 0", "draft_tokens == 0", "not draft_tokens > 2"])
@pytest.mark.parametrize("more", ["", "drafts: 1"])
def test_layers_of_the_model_that_only_some_sides_store_are_a_warning(when: str, more: str, tmp_path: Path) -> None:
    caches = DRAFT if more else ""
    (tmp_path / "toy.yaml").write_text(
        MODEL.format(more=more, windows="!= 3", caches=caches).replace("window: 512", f"window: 512, when: {when}")
    )
    said = CliRunner().invoke(main, ["check", str(tmp_path / "toy.yaml")]).output
    slip = "but sides store layers of the model whatever they draft"
    assert f"warning[W006]: cache 'windows' has `when: {when}`, {slip}" in said, said
    assert "= take out the condition; a draft layer belongs into a cache with `layers: drafts`" in said
    assert said.count("W006") == 1


def test_a_draft_whose_condition_is_of_another_option_is_a_warning(tmp_path: Path) -> None:
    when = "kv_dtype == 'fp8'"
    said = check(tmp_path, more="drafts: 1", caches=DRAFT.replace("draft_tokens > 0", when))[1]
    slip = f"has `when: {when}`: sides that do not draft may store it, too"
    assert f"warning[W006]: cache 'draft' of draft layers {slip}" in said, said
    assert "= add to the condition: draft_tokens > 0" in said
    both = check(tmp_path, more="drafts: 1", caches=DRAFT.replace("> 0", f"> 0 and {when}"))[1]
    assert "W006" not in both


def test_other_clauses_of_a_condition_are_kept(tmp_path: Path) -> None:
    when = "draft_tokens == 0 and kv_dtype == 'fp8'"
    toy = MODEL.format(more="drafts: 1", windows="!= 3", caches=DRAFT)
    (tmp_path / "toy.yaml").write_text(toy.replace("window: 512", f"window: 512, when: {when}"))
    said = CliRunner().invoke(main, ["check", str(tmp_path / "toy.yaml")]).output
    assert "= take draft_tokens out of the condition, and leave the rest; a draft layer belongs" in said, said


def test_wrong_layers_are_pointed_to_also_beside_a_condition(tmp_path: Path) -> None:
    mixed = "  more: {kind: cross-attention, layers: [4, 40], heads: 8, dim: 128, when: draft_tokens > 0}\n"
    check(tmp_path, more="drafts: 1", caches=mixed)
    found = json.loads(CliRunner().invoke(main, ["check", str(tmp_path / "toy.yaml"), "--format", "json"]).stdout)
    (place,) = {one["column"] for one in found if one["code"] == "W006"}
    assert place == mixed.index("[4, 40]") + 1


@pytest.mark.parametrize("when", ["", ", when: draft_tokens > 0"])
def test_layers_counted_from_1_are_no_advice_to_store_them_only_when_drafting(when: str, tmp_path: Path) -> None:
    """`when: draft_tokens > 0` there would take the model's own layers from sides that do not draft."""
    mixed = f"  more: {{kind: cross-attention, layers: [4, 8, 40], heads: 8, dim: 128{when}}}\n"
    said = check(tmp_path, more="drafts: 1", caches=mixed)[1]
    assert "warning[W006]: cache 'more' has layers 4, 8 of the model, and draft layer 40" in said, said
    assert "= layers count from 0: subtract 1 from each number if you counted from 1; if not, " in said
    assert "= write when" not in said


@pytest.mark.parametrize(
    ("layers", "error", "help"),
    [
        ("0-2", "K012", "list each number, [0, 1, 2], or write a condition: layer <= 2"),
        ("'0-2, 4-6'", "K012", "list each number, [0, 1, 2], or write a condition: layer <= 2"),
        ("[0-2, 4]", "K012", "list each number, [0, 1, 2], or write a condition: layer <= 2"),
        ("[4, 6..8]", "K012", "list each number, [0, 1, 2], or write a condition: layer <= 2"),
        ("0-2, 4-6, 8", "Y010", "a list has brackets, [0, 1, 2], and a number no commas"),
        ("0, 1, 2", "Y010", "a list has brackets, [0, 1, 2], and a number no commas"),
        (
            "layer in [0, 1, 2]", "Y001",
            "write a list alone, [0, 1, 2], or quote an expression, 'among(layer, 0, 1, 2)'",
        ),
        (
            '"layer in [0, 1, 2]"', "E001",
            "write among(layer, 0, 1, 2), or instead of the expression a list, [0, 1, 2]",
        ),
    ],
)  # fmt: skip
def test_other_ways_to_list_layers_are_answered_with_one_that_works(
    layers: str, error: str, help: str, tmp_path: Path
) -> None:
    code, said = check(tmp_path, caches=f"  more: {{kind: gqa, layers: {layers}, heads: 8, dim: 128}}\n")
    assert (code, f"error[{error}]" in said, f"= {help}\n" in said) == (2, True, True), said
    assert "write all digits" not in said
    assert "quote an expression with a comma" not in said


@pytest.mark.parametrize(
    ("more", "help"),
    [
        ("words: {drafts: 0}", "write config: {words: …}"),
        ("architecture: ToyForCausalLM", "write checkpoint: {architecture: …}"),
        ("mlp: [0]", "write no_cache: {mlp: …}"),
        ("slidng: 3", ""),
    ],
)
def test_a_key_at_the_wrong_place_is_sent_to_its_mapping(more: str, help: str, tmp_path: Path) -> None:
    code, said = check(tmp_path, more=more)
    assert (code, "error[K001]: unknown key" in said, f"= {help}" in said) == (2, True, bool(help)), said


@pytest.mark.parametrize(("dtype", "warned"), [("fp8", True), ("f16", False)])
def test_a_model_with_an_element_type_of_8_bits_is_a_warning(dtype: str, warned: bool, tmp_path: Path) -> None:
    """It is nearly always the type of a side's caches."""
    path, text = tmp_path / "toy.yaml", MODEL.format(more="", windows="!= 3", caches="")
    path.write_text(text.replace("dtype: bf16", f"dtype: {dtype}"))
    said = CliRunner().invoke(main, ["check", str(path)]).output
    assert ("warning[W002]: dtype: fp8: " in said, "give sides kv_dtype=fp8" in said) == (warned, warned), said


def test_every_shipped_model_declares_its_layers() -> None:
    library = load()
    assert [name for name in library.models if library.model(name).undeclared] == []


def test_a_layer_with_two_caches_of_the_same_tokens_is_a_warning_everywhere(tmp_path: Path) -> None:
    """It happened: `all` for the layers with a window, and 36 of 30 layers were moved without a word."""
    code, said = check(tmp_path, windows=">= 0")
    assert code == 0
    assert (
        "toy.yaml:9:32: warning[W005]: layers 3, 7, 11, 15, 19, 23, 27, 31, 35, 39 are listed in several caches" in said
    )
    text = compile_pair(load([tmp_path / "toy.yaml"]), "toy", "tp=1", "tp=1").text
    assert "are listed in several caches of the same tokens: full and windows" in " ".join(
        text.replace("#", "").split()
    )


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("kind: mla, layers: all, latent: 512, rope: 64", True),
        ("kind: gqa, layers: layer % 4 == 3, heads: 8, dim: 128, runs: 2", False),
        ("kind: cross-attention, layers: all, heads: 8, dim: 128", False),
        ("kind: indexer, layers: all, dim: 128", False),
        ("kind: gqa, layers: all, heads: 8, dim: 128, when: draft_tokens > 0", False),
    ],
)
def test_kinds_say_how_many_of_their_caches_a_layer_has(more: str, warned: bool, tmp_path: Path) -> None:
    _, said = check(tmp_path, caches=f"  more: {{{more}}}\n")
    assert ("W005" in said, "error[" in said) == (warned, False)


def test_no_shipped_model_has_a_warning_about_layers() -> None:
    library = load()
    assert [text for model in library.models.values() for text in model_doubts(library, model, ())] == []
