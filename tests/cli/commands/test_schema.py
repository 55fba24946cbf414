"""`kvplan schema`: where schemas go, and what is in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from kvplan.cli.main import main
from kvplan.dsl.files.documents import FILE_TYPES

OWN = """kvplan: 1
kind: my.kind
title: Numbers
params: {dim: {doc: how many}, place: {type: name, default: left, values: [left, right]}}
store: tokens
tensors: {x: {axes: {token: ~, dim: dim}, dtype: u8}}
storage: {rows: "layer { block { x[token dim] } }"}
"""
CACHE = {"kind": "my.kind", "layers": "all", "dim": 4}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["schema", *words])


def validator(*words: str) -> Draft202012Validator:
    made = run(*words)
    assert made.exit_code == 0
    return Draft202012Validator(json.loads(made.output))


def model(**cache: Any) -> dict[str, Any]:
    head = {"kvplan": 1, "model": "m", "title": "A model", "dtype": "bf16", "layers": 2}
    return {**head, "caches": {"a": {**CACHE, **cache}}}


def test_a_directory_gets_one_for_all_and_one_for_each_sort(tmp_path: Path) -> None:
    out = tmp_path / "not" / "there"
    assert run("-o", str(out)).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{one}.schema.json" for one in ("kvplan", *FILE_TYPES)
    )
    assert json.loads((out / "kvplan.schema.json").read_text()) == json.loads(run().output)
    for sort in FILE_TYPES:
        assert json.loads((out / f"{sort}.schema.json").read_text()) == json.loads(run(sort).output)


def test_a_file_gets_one(tmp_path: Path) -> None:
    assert run("kind", "-o", str(tmp_path / "k.json")).output == f"wrote {tmp_path / 'k.json'}\n"
    assert run("kind", "-o", str(tmp_path / "kinds")).exit_code == 0
    assert [path.name for path in (tmp_path / "kinds").iterdir()] == ["kind.schema.json"]
    assert (tmp_path / "k.json").read_text() == (tmp_path / "kinds/kind.schema.json").read_text() == run("kind").output


def test_kinds_of_ones_own_are_known_where_they_are_shown(tmp_path: Path) -> None:
    (tmp_path / "my.kind.yaml").write_text(OWN)
    knowing, plain = validator("--layouts", str(tmp_path)), validator()
    for given, right in (({}, True), ({"place": "right"}, True), ({"place": "'left' if dim > 2 else 'right'"}, True),
                         ({"place": "up"}, False), ({"dim": [4]}, False), ({"width": 4}, False)):  # fmt: skip
        assert knowing.is_valid(model(**given)) == right, given
    # A kind that is not known may have any parameters, each an expression.
    assert plain.is_valid(model(width=4))
    assert not plain.is_valid(model(width={"of": 4}))


def test_what_a_part_lacks_may_stand_elsewhere() -> None:
    check = validator()
    lacking = {key: value for key, value in model(kind="gqa", heads=4).items() if key != "layers"}
    assert not check.is_valid(lacking)
    assert check.is_valid({**lacking, "variants": {"m-8b": {"layers": 8, "caches": {"a": {"heads": 2}}}}})
    assert not check.is_valid({**lacking, "variants": {"m-8b": {"layer": 8}}})
    assert not check.is_valid({"kvplan": 1, "engine": "e", "title": "An engine"})
    assert check.is_valid({"kvplan": 1, "engine": "e", "title": "An engine", "extends": "base"})
    assert not check.is_valid({"kvplan": 1, "engine": "e", "extends": "base", "require": [{"that": "tp > 1"}]})


def test_bad_words_end_with_a_sentence(tmp_path: Path) -> None:
    wrong = run("modle")
    assert wrong.exit_code == 2
    assert "'modle' is none of fleet, kind, engine, model, deployment, machine" in wrong.output
    assert f"[{'|'.join(FILE_TYPES)}]" in wrong.output
    (tmp_path / "bad.yaml").write_text(OWN.replace("my.kind", "bad").replace("store: tokens", "store: token"))
    assert (found := run("--layouts", str(tmp_path))).exit_code == 2
    assert "K010" in found.output


@pytest.mark.skipif(os.name != "posix", reason="a file where a folder should be")
def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "x.json"):
        found = run("-o", str(path))
        assert found.exit_code == 2
        assert "cannot be written" in found.output
    (tmp_path / "folder.json").mkdir()
    assert run("-o", str(tmp_path / "folder.json")).exit_code == 2
