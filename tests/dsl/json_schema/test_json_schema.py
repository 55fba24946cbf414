"""The schemas take every shipped file and example, and refuse the mistakes that a schema can see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.dsl.json_schema.core_yaml import seen, value
from tests.paths import ROOT, TESTS
from tests.shares import later, share, with_rest

from kvplan.dsl.check import errors_of
from kvplan.dsl.json_schema import FILES, schema
from kvplan.dsl.library import load
from kvplan.dsl.text.yaml_reader import read_text

SHIPPED = [*sorted(Path(str(files("kvplan.layouts"))).glob("*/*.yaml")), *sorted((ROOT / "examples").glob("*.yaml"))]
BAD = sorted((TESTS / "dsl/text/bad").glob("*.yaml"))
# Codes of errors in a file's keys and in the shapes of its values.
SEEN = {"K001", "K002", "K003", "K004", "K005", "K009", "K010", "K013"}
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@pytest.fixture(scope="module")
def whole() -> Draft202012Validator:
    return Draft202012Validator(schema(load()))


def mapping(path: Path) -> dict[str, object]:
    return cast(dict[str, object], seen(path))


def faults(validator: Draft202012Validator, value: object) -> list[str]:
    return [error.message for error in validator.iter_errors(value)]


# The schema of all sorts has those of each in it.
@pytest.mark.parametrize("sort", [None, *later(FILES)])
def test_schemas_are_schemas(sort: str | None) -> None:
    Draft202012Validator.check_schema(schema(load(), sort))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_are_taken(path: Path, whole: Draft202012Validator) -> None:
    assert faults(whole, seen(path)) == []


def test_files_in_the_docs_are_taken(whole: Draft202012Validator) -> None:
    texts = re.findall(r"```yaml\n(kvplan: 1\n.*?)```", (ROOT / "docs/dsl.md").read_text(), re.DOTALL)
    assert len(texts) >= 6
    for text in texts:
        assert faults(whole, value(read_text(text, Path("docs.yaml")).root)) == [], text


# Mistakes that no schema sees, by code and file: what one key says of another, or what a number is written like.
UNSEEN = {
    "K001": {"config_words", "model_config_lacks_parameters", "model_config_names"},
    "K002": {
        "kind_needs_retain_alone",
        "kind_needs_sink_alone",
        "kind_ring_without_size",
        "model_config_lacks_parameters",
        "model_config_without_match",
        "model_match_key",
    },
    "K003": {"engine_versions"},
    "K004": {"keys_version_not_first"},
    "K009": {"kind_length_reserved"},
    "K010": {
        "engine_alias",
        "engine_choices",
        "engine_default_not_a_value",
        "engine_mesh_twice",
        "engine_policy_option",
    },
    "K013": {"model_octal_number"},
}


def codes(path: Path) -> set[str]:
    """The codes that `check` finds in a file of bad/, from its first lines."""
    return set(re.findall(r"^# .*error\[(\w+)\]", path.read_text(), re.MULTILINE))


def judged() -> list[Any]:
    """Files that an editor can read and that have a mistake of those that a schema is about."""
    files = [path for path in BAD if not any(code.startswith("Y") for code in codes(path))]
    return [pytest.param(path, id=path.stem) for path in files if codes(path) & SEEN]


@pytest.mark.parametrize("path", judged())
def test_mistakes_in_keys_and_shapes_are_refused(path: Path, whole: Draft202012Validator) -> None:
    unseen = {code for code, names in UNSEEN.items() if path.stem in names}
    assert bool(faults(whole, seen(path))) == bool((codes(path) & SEEN) - unseen)


@pytest.mark.parametrize("sort", FILES)
def test_one_sort_and_all_say_the_same(sort: str, whole: Draft202012Validator) -> None:
    alone = Draft202012Validator(schema(load(), sort))
    every = [mapping(path) for path in (*SHIPPED, *(p.values[0] for p in judged()))]
    files = [file for file in every if sort == next((each for each in FILES if each in file), "")]
    assert files
    for file in files:
        assert sorted(faults(alone, file)) == sorted(faults(whole, file))


MUTANTS = {
    "kind": "layouts/kinds/mla.yaml",
    "engine": "layouts/engines/sglang.yaml",
    "model": "layouts/models/qwen3-next-80b.yaml",
    "deployment": "examples/demo.yaml",
    "machine": "layouts/machines/xeon-2-cores-shared-memory.yaml",
    "fleet": "examples/fleet.yaml",
}


def mutants(value: object, rebuild: Any = lambda new: new) -> Iterator[tuple[str, object]]:
    """`value` with one key less, and with one too many, in every mapping in it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"without {key}", rebuild({k: v for k, v in value.items() if k != key})
            yield from mutants(inner, lambda new, key=key: rebuild({**value, key: new}))
        yield "with one more", rebuild({**value, "no key": "nothing"})
    items = value if isinstance(value, list) else []
    for at, inner in enumerate(items):
        yield from mutants(inner, lambda new, at=at: rebuild([*items[:at], new, *items[at + 1 :]]))


@with_rest("third")
@pytest.mark.parametrize("sort", MUTANTS)
def test_schema_and_reader_agree_on_keys(sort: str, rest: bool, tmp_path: Path, whole: Draft202012Validator) -> None:
    """The schema accepts every file that the reader accepts, and refuses files with keys that the reader refuses."""
    path, library, given, refused = tmp_path / "mutant.yaml", load(), mapping(ROOT / MUTANTS[sort]), 0
    # Rules that recognise caches are open: their other keys are parameters of kinds.
    given = {key: value for key, value in given.items() if key not in ("match", "config", "dump")} | {sort: "mutant"}
    for what, mutant in share(mutants(given), 0, 3, rest):
        text = yaml.dump(mutant, Dumper=DUMPER, sort_keys=False, width=1000, allow_unicode=True)
        path.write_text(re.sub(r": null$", ": ~", text, flags=re.MULTILINE))
        found, wrong = {error.code for error in errors_of(library, path)}, faults(whole, mutant)
        assert found or not wrong, what
        # Words that an option may be are listed beside it: no schema compares them.
        assert wrong or not found & (SEEN - {"K010"}), what
        refused += bool(wrong)
    assert refused >= 5
