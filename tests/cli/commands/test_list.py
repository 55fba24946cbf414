"""kvplan list: all that is known, or what some words are about."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.dsl.configs.architectures import architectures
from kvplan.dsl.library import load

SECTIONS = ["models", "kinds", "engines", "machines", "notes"]


def said(*words: str) -> str:
    result = CliRunner().invoke(main, ["list", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def sections(text: str) -> dict[str, list[str]]:
    """Headings with the names below each."""
    parts = [part.splitlines() for part in text.strip().split("\n\n")]
    return {lines[0]: [line.split()[0] for line in lines[1:] if re.match(r"  \S", line)] for lines in parts}


def test_without_words_everything_is_listed() -> None:
    library = load()
    assert sections(said()) == {
        "models": list(library.models), "kinds": list(library.kinds), "engines": list(library.engines),
        "machines": list(library.machines),
    }  # fmt: skip


def test_ones_own_models_are_listed_first(tmp_path: Path) -> None:
    (tmp_path / "zoo.yaml").write_text("kvplan: 1\nmodel: zoo\nextends: llama-3.1-8b\n")
    assert sections(said("--layouts", str(tmp_path)))["models"] == ["zoo", *load().models]


@pytest.mark.parametrize("word", ["gdn", "GDN"])
def test_a_word_finds_kinds_and_the_models_that_have_them(word: str) -> None:
    library = load()
    having = [name for name in library.models if any(c.kind == "gdn" for c in library.models[name].caches.values())]
    assert sections(said(word)) == {"models": having, "kinds": ["gdn"]}
    assert having


def test_all_words_are_meant() -> None:
    library = load()
    both = sections(said("mla", "deepseek"))["models"]
    alone = sections(said("deepseek"))["models"]
    assert both == [name for name in alone if any(c.kind == "mla" for c in library.models[name].caches.values())]
    assert 0 < len(both) < len(alone)


def test_notes_stay_with_the_models_that_are_meant() -> None:
    assert "unconfirmed" in said("bamba")
    assert "unconfirmed" not in said("llama-3.1-8b")


def test_a_word_that_nothing_has_is_told() -> None:
    assert said("mla", "zzz") == "nothing has mla and zzz in its name, title or kind\n"
    assert json.loads(said("zzz", "--format", "json")) == {section: {} for section in SECTIONS}


def test_engines_are_marked_and_their_releases_stand_apart() -> None:
    library, lines = load(), said().splitlines()
    default = [line for line in lines if line.endswith(", the default")]
    assert [line.split()[0] for line in default] == [library.default_engine]
    for name in library.engines:
        engine = library.engines[name]
        versions = f" ({engine.versions})" if engine.versions else ""
        assert any(line.startswith(f"  {name} ") and f"  {engine.title}{versions}" in line for line in lines)


def test_json_says_the_same_of_fewer() -> None:
    every, some = (json.loads(said(*words, "--format", "json")) for words in ((), ("gdn",)))
    assert list(every) == list(some) == SECTIONS
    for section, entries in some.items():
        assert entries.items() <= every[section].items()
        assert len(entries) < len(every[section])


def test_two_default_engines_do_not_stop_the_list(tmp_path: Path) -> None:
    text = "kvplan: 1\nengine: second\nextends: custom\ntitle: Second\ndefault: true\n"
    (tmp_path / "second.yaml").write_text(text)
    assert "the default" not in said("--layouts", str(tmp_path))


def test_architectures_are_listed_with_what_is_known_of_them() -> None:
    first = architectures()[0]
    text = said("--architectures", first.name)
    assert all(word in text for word in (first.name, first.verdict, first.evidence))
    assert len(said("--architectures").splitlines()) == len(architectures()) + 1
    rows = json.loads(said("--architectures", "--format", "json"))
    assert [row["name"] for row in rows] == [row.name for row in architectures()]


def test_a_word_finds_architectures_by_their_verdict() -> None:
    rows = json.loads(said("--architectures", "refused", "--format", "json"))
    assert {row["verdict"] for row in rows} <= {"refused"}
