"""Families, layers by expression, draft layers, caches that a side may lack, and notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import Refused
from kvplan.dsl.check import check
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.model import MOST_LAYERS
from kvplan.dsl.text.diagnostics import DslError

FAMILY = """kvplan: 1
model: fam
title: A family
dtype: bf16
query_heads: 8
drafts: 1
caches:
  full: {kind: gqa, layers: layer % 4 == 3, heads: 8, dim: 64, -heads-note: guessed}
  window: {kind: gqa, layers: layer % 4 != 3, heads: 8, dim: 64, window: 128}
  draft: {kind: gqa, layers: drafts, heads: 4, dim: 64, when: draft_tokens > 0, optional: true}
variants:
  fam-small: {title: Small, layers: 8}
  fam-large: {title: Large, layers: 12, caches: {full: {heads: 4, -dim-note: measured}}, -note: new}
"""


@pytest.fixture
def family(tmp_path: Path) -> Path:
    path = tmp_path / "fam.yaml"
    path.write_text(FAMILY)
    return path


@pytest.fixture
def library(family: Path) -> Library:
    assert check([family]) == []
    return load([family])


def test_every_variant_is_a_model_and_the_family_is_none(library: Library) -> None:
    assert library.family("fam") == ("fam-small", "fam-large")
    assert {"fam-small", "fam-large"} <= set(library.models)
    with pytest.raises(DslError, match="'fam' is a family") as caught:
        library.model("fam")
    (error,) = caught.value.diagnostics
    said = "its models are fam-small and fam-large; give one by name, with --layouts DIR"
    assert (error.code, error.help) == ("K016", said)
    with pytest.raises(DslError, match="'llama-3' is a family") as caught:
        library.model("llama-3")
    assert caught.value.diagnostics[0].help.endswith("; give one by name")


def test_a_variant_lies_over_its_family(library: Library) -> None:
    small, large = library.model("fam-small"), library.model("fam-large")
    assert (small.title, small.layers, large.title, large.layers) == ("Small", 8, "Large", 12)
    assert small.caches["full"].layers == (3, 7)
    assert large.caches["full"].layers == (3, 7, 11)
    assert large.caches["window"].layers == (0, 1, 2, 4, 5, 6, 8, 9, 10)
    texts = {
        name: model.caches["full"].params["heads"].text for name, model in library.models.items() if "fam-" in name
    }
    assert texts == {"fam-small": "8", "fam-large": "4"}


def test_notes_say_what_they_are_about(library: Library) -> None:
    assert library.model("fam-small").notes == (("full.heads", "guessed"),)
    assert set(library.model("fam-large").notes) == {("full.heads", "guessed"), ("full.dim", "measured"), ("", "new")}


def test_drafts_run_on_the_last_stage_where_a_side_drafts(library: Library) -> None:
    plain, drafting = (bind(library, library.model("fam-small"), f"pp=2,draft_tokens={n}") for n in (0, 1))
    assert [list(worker.layers) for worker in drafting.workers] == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]
    assert [cache.name for cache in plain.caches] == ["full", "window"]
    assert (plain.key, drafting.key) == ("tp=1,pp=2", "tp=1,pp=2,draft_tokens=1")
    assert {cache.name: cache.layers for cache in drafting.caches}["draft"] == (8,)


def test_a_draft_that_one_side_lacks_is_skipped_or_refused(family: Path) -> None:
    plan = compile_pair(load([family]), "fam-small", "draft_tokens=1", "tp=2", {}).plan
    assert plan.skipped == ("draft",)
    family.write_text(FAMILY.replace(", optional: true", ""))
    with pytest.raises(Refused, match="draft") as caught:
        compile_pair(load([family]), "fam-small", "draft_tokens=1", "tp=2", {})
    assert caught.value.code == "C131"


def test_two_families_cannot_share_a_name(family: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(FAMILY.replace("model: fam", "model: other").replace("Small", "Smaller"))
    with pytest.raises(DslError, match="K007") as caught:
        load([family, other])
    said = caught.value.diagnostics[0]
    assert (said.message, said.help) == (
        f"two files describe model 'fam-small': this one and {family}",
        "give the model another name here, or leave one file out",
    )


def test_a_variant_cannot_have_a_shipped_models_name(family: Path) -> None:
    family.write_text(FAMILY.replace("fam-small", "llama-3.1-8b"))
    assert {error.code for error in check([family])} == {"K007"}


@pytest.mark.parametrize("key", ['"variants":', "variants :", "variants:\r"])
def test_a_family_is_one_however_its_key_is_written(family: Path, key: str) -> None:
    family.write_text(FAMILY.replace("variants:", key), newline="")
    found = load([family])
    assert found.family("fam") == ("fam-small", "fam-large")
    assert "fam" not in found.models


def test_a_variant_is_laid_over_its_family_alone(family: Path) -> None:
    """The keys of a layout that a variant extends would rank below the family's own keys, which surprises readers."""
    family.write_text(FAMILY.replace("layers: 12", "layers: 12, extends: fam-small"))
    assert [(error.code, "extends" in error.message) for error in check([family])] == [("K001", True)]


def test_who_extends_a_family_is_told_its_models(family: Path, tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("kvplan: 1\nmodel: ours\nextends: fam\n")
    (error,) = check([path, family])
    assert (error.code, error.help) == ("K008", f"{family} is a family: its models are fam-small and fam-large")


@pytest.mark.parametrize("name", ["fam", "llama-3.1-8b"])
def test_every_variant_is_checked_whatever_the_family_is_called(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    text = FAMILY.replace("model: fam", f"model: {name}").replace("fam-small", "fam")
    path.write_text(text.replace("layers: 12", "layers: twelve"))
    assert [error.code for error in check([path])] == ["K013"]


def test_a_family_that_cannot_be_read_leaves_others_alone(family: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    broken = tmp_path / "models" / "broken.yaml"
    broken.write_text("kvplan: 1\nmodel: broken\nvariants:\n\ta: {layers: 1}\n")
    assert load([family], [tmp_path / "models"]).model("fam-small").layers == 8
    assert [error.code for error in check([broken])] == ["Y009"]


def test_a_condition_is_no_word(family: Path) -> None:
    family.write_text(FAMILY.replace("when: draft_tokens > 0", "when: kv_dtype"))
    found = load([family])
    with pytest.raises(DslError, match="expected a condition, not the text 'bf16'"):
        bind(found, found.model("fam-small"), "tp=1")


def test_a_cache_that_a_variant_misspells_is_told(family: Path) -> None:
    family.write_text(FAMILY.replace("caches: {full: {heads: 4, ", "caches: {ful: {heads: 4, "))
    (error,) = check([family])
    assert (error.code, error.help) == ("K002", "add kind: …, or did you mean 'full'?")
    family.write_text(FAMILY.replace("caches: {full: {heads: 4, ", "caches: {other: {heads: 4, "))
    assert [error.help for error in check([family])] == ["add kind: …"]


@pytest.mark.parametrize(("layers", "drafts", "codes"), [
    (1000, 1000, []), (1001, 1, ["K013"]), (10**17, 1, ["K013"]), (10**30, 1, ["K013"]), (8, 1001, ["K013"]),
    (8, 10**30, ["K013"]), (0, 1, ["K013"]), (8, '"0"', ["K013"]),
])  # fmt: skip
def test_layers_have_a_limit(family: Path, layers: int, drafts: int | str, codes: list[str]) -> None:
    one = FAMILY.split("variants:")[0].replace("drafts: 1", f"layers: {layers}\ndrafts: {drafts}")
    family.write_text(one)
    errors = check([family])
    assert [error.code for error in errors] == codes
    assert all(f"to {MOST_LAYERS}, not" in error.message for error in errors)
