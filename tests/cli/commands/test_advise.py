"""kvplan advise: the settings that win time, by their real names, as text and as JSON."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.compiler.explain.advise import Advice, advise
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.machine import MachineProfile

PAIR = ("--prefill", "tp=4", "--decode", "tp=2,order=nhd")
XEON = ("--machine", "xeon-2-cores-shared-memory")


ADVISED: dict[tuple[str, ...], Advice] = {}


@pytest.fixture(autouse=True)
def _each_pair_is_advised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer, printed in several formats."""

    def once(library: Library, model: str, prefill: str, decode: str, profile: MachineProfile, *rest: Any) -> Advice:
        key = model, prefill, decode, profile.name, *map(str, rest[1:])
        if key not in ADVISED:
            ADVISED[key] = advise(library, model, prefill, decode, profile, *rest)
        return ADVISED[key]

    monkeypatch.setattr("kvplan.cli.commands.advise.advise", once)


@cache
def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["advise", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_text_has_the_pair_as_it_is_and_the_setting_to_change() -> None:
    lines = run("qwen3-0.6b", *PAIR, *XEON).splitlines()
    assert lines[0] == "qwen3-0.6b, one request of 1,024 tokens: tp=4 -> tp=2,order=nhd"
    assert lines[2] == f"Two cores of an Intel Xeon, shared memory ({XEON[1]})"
    assert lines[3].startswith("Intel Xeon (Sapphire Rapids), 2 cores of a virtual machine; NIXL 1.5.1, UCX 1.23")
    rows = [re.split(r"  +", line.strip()) for line in lines if " ms " in line]
    assert rows[0][1:2] + rows[0][4:] == ["1.0", "direct", "as it is"]
    assert ["direct", "decode: VLLM_KV_CACHE_LAYOUT=LBHNC (now LBNHC, nhd)"] in [row[4:] for row in rows]


@pytest.mark.full
def test_without_a_machine_no_wire_is_taken_for_granted() -> None:
    text = run("qwen3-0.6b", *PAIR)
    places = [text.index(f"({name})") for name in load().machines]
    assert len(places) > 1
    assert places == sorted(places)
    assert text.count("as it is") == len(places)
    assert "No --machine is given" in text
    assert "No --machine is given" not in run("qwen3-0.6b", *PAIR, *XEON)


def test_json_has_all_and_what_is_worth_it() -> None:
    told = json.loads(run("qwen3-0.6b", *PAIR, *XEON, "--format", "json"))
    assert list(told) == ["model", "tokens", "machines"]
    assert [one["machine"]["name"] for one in told["machines"]] == [XEON[1]]
    for one in told["machines"]:
        assert list(one) == ["machine", "now", "others", "refused", "every", "worth"]
        assert one["now"]["changes"] == []
        assert all(each in one["others"] for each in one["worth"])
        assert len(one["worth"]) < len(one["others"])


@pytest.mark.full
def test_the_wire_decides_what_is_worth_it() -> None:
    """Staged reads win more where each descriptor is a copy that a GPU is asked for."""
    staged = {}
    for one in json.loads(run("qwen3-0.6b", *PAIR, "--format", "json"))["machines"]:
        as_it_is = [each for each in one["others"] if not each["changes"] and each["strategy"] == "unpack"]
        staged[one["machine"]["name"]] = as_it_is[0]["us"] / one["now"]["us"]
    assert staged["h200-one-gpu"] < staged["rdma-400g"] < staged[XEON[1]]


def test_all_has_what_wins_nothing_too() -> None:
    shown, every = run("qwen3-0.6b", *PAIR, *XEON).splitlines(), run("qwen3-0.6b", *PAIR, *XEON, "--all").splitlines()
    assert {*shown} < {*every}


def test_a_pair_is_as_it_is_by_its_own_strategy() -> None:
    lines = run("qwen3-0.6b", *PAIR, *XEON, "--strategy", "auto", "--all").splitlines()
    rows = {tuple(re.split(r"  +", line.strip())[4:]) for line in lines if " ms " in line}
    assert {("unpack", "as it is"), ("direct", "options: {strategy: direct}")} <= rows
    first = next(line for line in lines if " ms " in line)
    assert re.split(r"  +", first.strip())[1] == "1.0"


def test_a_strategy_that_is_given_hides_no_other() -> None:
    (told,) = json.loads(run("qwen3-0.6b", *PAIR, *XEON, "--strategy", "pack", "--format", "json"))["machines"]
    assert told["now"]["strategy"] == "direct"
    assert {each["strategy"] for each in told["others"] if not each["changes"]} == {"unpack"}
    text = " ".join(run("qwen3-0.6b", *PAIR, *XEON, "--strategy", "auto", "--all").split())
    assert "with --strategy direct" in text


def test_a_longer_request_is_priced() -> None:
    once, twice = (
        json.loads(run("qwen3-0.6b", *PAIR, *XEON, "--format", "json", *words)) for words in ((), ("--tokens", "2048"))
    )
    (short,), (long,) = once["machines"], twice["machines"]
    assert (once["tokens"], twice["tokens"]) == (1024, 2048)
    assert (long["now"]["descriptors"], long["now"]["bytes"]) == (
        2 * short["now"]["descriptors"],
        2 * short["now"]["bytes"],
    )
