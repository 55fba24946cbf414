"""A mistake in a kind of one's own is told once, where it is; one that no engine can store is told by `check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import Refused
from kvplan.dsl.check import check
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import Diagnostic, DslError

KIND = """\
kvplan: 1
kind: own
title: A kind
params: {channels: {doc: channels}, dim: {doc: elements}}
store: state
tensors:
  s: {axes: {channel: channels, d: dim}, dtype: dtype}
storage:
  DS: layer { block { s[channel/24 d channel%24] } }
"""
MODEL = """\
kvplan: 1
model: mine
title: Mine
dtype: bf16
layers: 2
caches:
  a: {kind: own, layers: [0], channels: 64, dim: 8}
  b: {kind: own, layers: [1], channels: 48, dim: 8}
"""
ENGINE = "kvplan: 1\nengine: able\ntitle: E\nextends: custom\nown: {own: {ALL: 'layer { block { s[channel d] } }'}}\n"


def paths(folder: Path, kind: str = KIND, model: str = MODEL) -> list[Path]:
    found = {"own": kind, "mine": model}
    for name, text in found.items():
        (folder / f"{name}.yaml").write_text(text)
    return [folder / f"{name}.yaml" for name in found]


def checked(folder: Path, kind: str = KIND, model: str = MODEL) -> list[Diagnostic]:
    return check(paths(folder, kind, model), [folder])


def test_a_mistake_is_told_once_whichever_caches_are_of_the_kind(tmp_path: Path) -> None:
    (error,) = checked(tmp_path, KIND.replace("storage:", "storages:"))
    assert (error.code, error.message) == ("K001", "unknown key 'storages' in a kind")


@pytest.mark.parametrize("store", ["states", "tokens2"])
def test_a_store_that_is_none_says_nothing_of_tokens(tmp_path: Path, store: str) -> None:
    (error,) = checked(tmp_path, KIND.replace("store: state", f"store: {store}"))
    assert (error.code, error.message) == ("K010", f"store cannot be '{store}'")


def test_tiles_that_divide_an_axis_in_no_storage_are_an_error(tmp_path: Path) -> None:
    (error,) = checked(tmp_path)
    assert (error.code, error.message) == ("C104", "axis 'channel' has 64 items, which tiles of 24 do not divide")
    assert (error.span.path, error.span.line) == (str(tmp_path / "mine.yaml"), 7)
    assert error.notes == (f"so it is in the storage 'DS', {tmp_path / 'own.yaml'}:9",)


def test_a_compiler_names_cache_and_storage(tmp_path: Path) -> None:
    paths(tmp_path)
    with pytest.raises(Refused) as caught:
        compile_pair(load((), [tmp_path]), "mine", "tp=1", "tp=1", {})
    assert caught.value.message == "storage 'DS' of cache 'a': tiles of 24 do not divide channel = 64"


def test_another_storage_or_an_engines_own_will_do(tmp_path: Path) -> None:
    more = KIND + "  SD: layer { block { s[channel/16 d channel%16] } }\n"
    assert checked(tmp_path, more) == []
    (tmp_path / "able.yaml").write_text(ENGINE)
    assert checked(tmp_path) == []


def test_a_model_in_a_file_of_another_name_is_found_by_its_own(tmp_path: Path) -> None:
    paths(tmp_path)
    (tmp_path / "mine.yaml").rename(tmp_path / "other.yaml")
    with pytest.raises(DslError) as caught:
        load((), [tmp_path]).model("mine")
    (error,) = caught.value.diagnostics
    assert (error.code, error.span.path) == ("K006", str(tmp_path / "other.yaml"))
    with pytest.raises(DslError, match="K008"):
        load((), [tmp_path]).model("min")


def test_a_kind_in_a_file_of_another_name_is_named(tmp_path: Path) -> None:
    paths(tmp_path, KIND.replace("channel/24 d channel%24", "channel d"))
    (tmp_path / "own.yaml").rename(tmp_path / "other.yaml")
    with pytest.raises(DslError) as caught:
        load((), [tmp_path]).model("mine")
    help = f"{tmp_path / 'other.yaml'} describes it: rename the file to own.yaml, or write kind: other"
    assert {(error.code, error.help) for error in caught.value.diagnostics} == {("K008", help)}


@pytest.mark.parametrize(
    ("value", "code", "said", "help"),
    [
        ("[4]", "E023", "'channels' must be an expression, not a list", "write one value: 4"),
        ("[4, 5]", "E023", "'channels' must be an expression, not a list", "write one value, without brackets"),
        ('"[4]"', "E001", "expected a value, not '['", "a list is no value: write one, without brackets"),
        ('"4.5"', "E001", "'channels' must be a whole number, not 4.5", "there are no fractions"),
        ("4.5", "E001", "'channels' must be a whole number, not 4.5", "there are no fractions"),
    ],
)
def test_what_is_no_number_says_how_to_write_one(tmp_path: Path, value: str, code: str, said: str, help: str) -> None:
    (error,) = checked(tmp_path, model=MODEL.replace("64", value))
    assert (error.code, error.message, error.help) == (code, f"cache 'a': {said}", help)
