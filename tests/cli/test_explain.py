"""What `kvplan explain` says lands where: as text, as data, for the worker that was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main

PAIR = ["llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2"]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def answer(*words: str) -> Any:
    return json.loads(run(*words, "--format", "json").stdout)


def test_the_first_worker_is_drawn_unless_another_is_asked_for() -> None:
    first, second = run(*PAIR).stdout, run(*PAIR, "--worker", "1").stdout
    assert "WHAT LANDS WHERE, DECODE WORKER 0" in first
    assert "A  prefill 0  head 0-1" in first
    assert "WHAT LANDS WHERE, DECODE WORKER 1" in second
    assert "A  prefill 2  head 4-5" in second


def test_pieces_are_data() -> None:
    said = answer(*PAIR, "--worker", "1")
    assert said["worker"] == 1
    assert [(piece["letter"], piece["prefill_worker"], piece["holds"]) for piece in said["landing"]] == [
        ("A", 2, {"head": [4, 6]}),
        ("B", 3, {"head": [6, 8]}),
    ]
    (_, last) = said["landing"]
    assert last["decode"] == {
        "plane": "attention.0",
        "number": 0,
        "page": 32768,
        "offset": 16384,
        "bytes": 16384,
        "turns": [],
    }
    assert last["repeats"] == [{"axis": "layer", "count": 32, "prefill": [1, 0], "decode": [1, 0]}]
    assert sum(piece["spans"] for piece in said["landing"]) == said["moves"][0]["spans"]


def test_a_plan_on_disk_shows_the_same(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["compile", *PAIR, "-o", str(tmp_path)])
    disk = answer(str(tmp_path / "llama_3_1_8b/p_tp4__d_tp2.py"), "--worker", "1")
    assert disk["landing_drawing"] == answer(*PAIR, "--worker", "1")["landing_drawing"]


@pytest.mark.parametrize(
    "words",
    [[*PAIR, "--worker", "2"], [*PAIR, "--worker", "-1"], [*PAIR[:3], "--worker", "0"], ["C110", "--worker", "0"]],
)
def test_a_worker_that_is_not_there_is_bad_input(words: list[str]) -> None:
    said = run(*words, "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "S024")
