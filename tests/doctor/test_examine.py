"""The doctor's words on sides and on the ways between them come from the engines' files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.doctor.examine import describe_examined, describe_way, examined
from kvplan.dsl.library import Library, load

OWN = """
kvplan: 1
engine: own
extends: custom
title: An engine that is told everything by itself
serve:
  command: own {model} --port {port}
  flag: --transfer
  connector: {name: Mine, module: mine}
  role: plays
  roles: {prefill: sends, decode: takes, both: does}
  extra: more
  settings:
    tp: {flag: --workers}
    block: {flag: --tokens, variable: TOKENS}
    kv_dtype: {flag: --elements, words: {bf16: brain}}
    order: {variable: ORDER, unset: LBNHC}
    conv: {variable: CONV, unset: SD}
"""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "own.yaml").write_text(OWN)
    return load([tmp_path / "own.yaml"])


def start(library: Library, text: str, model: str = "llama-3.1-8b") -> dict:
    told = describe_examined(examined(library, library.model(model), text), "decode")["start"]
    assert isinstance(told, dict)
    return told


def test_what_a_side_says_is_told_in_the_engine_s_words(library: Library) -> None:
    told = start(library, "engine=own,tp=2,block=32,kv_dtype=bf16,pad=64")
    assert told["flags"] == {"--workers": "2", "--tokens": "32", "--elements": "brain"}
    assert told["variables"] == {"TOKENS": "32", "ORDER": "LBHNC"}
    assert told["options"] == {"pad": "64"}
    assert told["connector"] == {"name": "Mine", "module": "mine", "plays": "takes"}
    assert (told["command"], told["extra"]) == ("own {model} --port {port}", "more")


def test_what_the_engine_would_not_do_by_itself_is_told_where_it_moves_a_byte(library: Library) -> None:
    assert start(library, "engine=own,tp=1")["variables"] == {"ORDER": "LBHNC"}
    assert start(library, "engine=own,tp=1,order=LBNHC")["variables"] == {"ORDER": "LBNHC"}
    assert start(library, "engine=own,tp=1", "falcon-h1-34b")["variables"] == {"ORDER": "LBHNC", "CONV": "DS"}
    assert start(library, "engine=own,tp=1")["flags"] == {}


def test_a_refused_side_refuses_the_way(library: Library) -> None:
    model = library.model("llama-3.1-8b")
    good, bad = (examined(library, model, text) for text in ("tp=1", "tp=3"))
    refused = describe_examined(bad, "prefill")
    assert refused["error"]["code"] == "C110"
    assert describe_way(bad, good) == describe_way(good, bad) == {"works": False, "error": refused["error"]}
    assert describe_way(good, good)["works"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            '{for: gqa, that: "false", say: "{dim} elements are not moved"}',
            "128 elements are not moved",
        ),
        ('{for: gqa, that: "false", say: no keys are moved}', "no keys are moved"),
        ('{for: gqa, that: "true", say: no keys are moved}', ""),
    ],
)
def test_a_limit_on_every_side_is_told_once_with_its_numbers(tmp_path: Path, rule: str, said: str) -> None:
    (tmp_path / "own.yaml").write_text(f"{OWN}  require: [{rule}]\n")
    library = load([tmp_path / "own.yaml"])
    side = examined(library, library.model("llama-3.1-8b"), "engine=own,tp=1")
    error = describe_examined(side, "decode")["connector_error"]
    assert (error["message"] if error else "") == said
