"""The section `dump` of an engine's file: rules over what the engine prints of a layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.dsl.files.engine_kinds import dump_rules
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.diagnostics import DslError

GOOD = "{caches: [{kind: gqa, when: class == 'A', heads: h, dim: d}]}"


def engine(tmp_path: Path, dump: str) -> tuple[Library, Engine]:
    file = tmp_path / "own.yaml"
    file.write_text(f"kvplan: 1\nengine: own\nextends: custom\ntitle: Own\ndump: {dump}\n")
    library = load([file], ())
    return library, library.engine("own")


def test_rules_are_read(tmp_path: Path) -> None:
    library, found = engine(
        tmp_path, "{dtype: \"first(dtype, 'bf16')\", caches: [{kind: mla, name: a, latent: l, rope: r}]}"
    )
    assert found.dump is not None
    assert (found.dump.dtype is None, found.dump.query_heads) == (False, None)
    assert [
        (rule.kind, rule.name, rule.when, sorted(rule.params)) for rule in dump_rules(found.dump, library.kinds)
    ] == [("mla", "a", None, ["latent", "rope"])]


def test_an_engine_without_the_section_has_no_rules() -> None:
    assert load((), ()).engine("custom").dump is None


def test_an_engine_that_extends_another_has_its_rules(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("kvplan: 1\nengine: mine\nextends: vllm\ntitle: Mine\n")
    library = load([file], ())
    mine, other = library.engine("mine").dump, library.engine("vllm").dump
    assert mine is not None
    assert other is not None
    names = [[rule.name for rule in dump_rules(dump, library.kinds)] for dump in (mine, other)]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("dump", "code"),
    [
        ("[]", "K003"),
        ("{}", "K002"),
        ("{caches: 3}", "K003"),
        ("{caches: [3]}", "K003"),
        ("{caches: [{when: x == 1}]}", "K002"),
        ("{caches: [{kind: gqaa}]}", "K008"),
        ("{caches: [{kind: gqa, headz: 3}]}", "K001"),
        ("{caches: [{kind: gqa, heads: '3 +'}]}", "E002"),
        ("{rules: []}", "K001"),
        (GOOD.replace("caches", "dtype: '(', caches"), "E002"),
        (GOOD.replace("kind: gqa", "kind: gqa, name: 'a b'"), "K009"),
    ],
)
def test_bad_rules_are_named(tmp_path: Path, dump: str, code: str) -> None:
    with pytest.raises(DslError) as raised:
        engine(tmp_path, dump)
    assert code in {d.code for d in raised.value.diagnostics}


def test_good_rules_are_no_error(tmp_path: Path) -> None:
    assert engine(tmp_path, GOOD)[1].dump is not None
