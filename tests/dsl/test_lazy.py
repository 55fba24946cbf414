"""A load reads only what is used: it skips kinds that no cache has, and checks an engine of one's own whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.dsl.check import check, errors_of
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError

OWN = "kvplan: 1\nengine: mine\nextends: vllm\ntitle: Mine\n"


def spoilt(tmp_path: Path, *paths: Path) -> Library:
    """The shipped layouts, with one kind that cannot be read."""
    library, bad = load(paths), tmp_path / "gdn.yaml"
    bad.write_text("kvplan: 1\nkind: gdn\ntitle: Spoilt\n")
    return Library({**library.paths, "kind": {**library.paths["kind"], "gdn": bad}})


def test_a_bad_kind_is_in_the_way_of_models_that_have_it(tmp_path: Path) -> None:
    library = spoilt(tmp_path)
    assert library.engine("vllm").options
    assert library.model("llama-3.1-8b").caches
    with pytest.raises(DslError, match="K002"):
        library.model("qwen3-next-80b")


def test_check_reads_every_kind_that_a_shipped_engine_names(tmp_path: Path) -> None:
    library = spoilt(tmp_path)
    assert "K002" in [error.code for error in errors_of(library, library.paths["engine"]["vllm"])]


def test_an_engine_of_ones_own_is_checked_whole_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(OWN)
    assert load([path]).engine("mine").options
    with pytest.raises(DslError, match="K002"):
        spoilt(tmp_path, path).engine("mine")


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("storage: {nothing: NHD}", "K008"),
        ("stride: {gqa: nothing}", "E005"),
        ('own: {gqa: {mine: "layer block { nothing }"}}', "E010"),
        ("instead: {mla: {when: nothing, kind: gqa, heads: 1, dim: 1}}", "E005"),
        ("dump: {caches: [{kind: nothing}]}", "K008"),
        ("require: [{that: heads > 1, say: no, for: nothing}]", "K008"),
    ],
)
def test_all_that_is_wrong_with_it_is_said_before_anything_is_made(tmp_path: Path, part: str, code: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{OWN}{part}\nversions: [1]\n")
    with pytest.raises(DslError) as error:
        load([path]).engine("mine")
    assert [each.code for each in error.value.diagnostics] == [each.code for each in check([path])]
    assert {"K003", code} <= {each.code for each in error.value.diagnostics}


def test_a_list_needs_what_files_say_and_checks_nothing(tmp_path: Path) -> None:
    heads = {head.name: head for head in spoilt(tmp_path).heads("kind")}
    assert (heads["gdn"].title, heads["gqa"].title) == ("Spoilt", load().kind("gqa").title)
