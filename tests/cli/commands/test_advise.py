"""kvplan advise: the settings that win time, by their real names, as text and as JSON."""

from __future__ import annotations

import json
import re
from functools import cache

from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.dsl.library import load

PAIR = ("--prefill", "tp=4", "--decode", "tp=2,order=nhd")


@cache
def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["advise", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_text_has_the_pair_as_it_is_and_the_setting_to_change() -> None:
    lines = run("qwen3-0.6b", *PAIR).splitlines()
    assert lines[0] == "qwen3-0.6b, one request of 1,024 tokens: tp=4 -> tp=2,order=nhd"
    assert load().default_machine in lines[1]
    rows = [re.split(r"  +", line.strip()) for line in lines if " ms " in line]
    assert rows[0][1:2] + rows[0][4:] == ["100 %", "direct", "as it is"]
    assert ["direct", "decode: VLLM_KV_CACHE_LAYOUT=LBHNC (now LBNHC)"] in [row[4:] for row in rows]


def test_json_has_all_and_what_is_worth_it() -> None:
    told = json.loads(run("qwen3-0.6b", *PAIR, "--format", "json"))
    assert list(told) == ["model", "tokens", "machine", "now", "others", "refused", "worth"]
    assert told["now"]["changes"] == []
    assert all(each in told["others"] for each in told["worth"])
    assert len(told["worth"]) < len(told["others"])


def test_all_has_what_wins_nothing_too() -> None:
    shown, every = run("qwen3-0.6b", *PAIR).splitlines(), run("qwen3-0.6b", *PAIR, "--all").splitlines()
    assert {*shown} < {*every}
