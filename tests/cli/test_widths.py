"""No line of prose, of a table or of a drawing is wider than the terminal; nor is help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.paths import FIXTURES, ROOT

from kvplan.cli.main import VERBS, main
from kvplan.cli.terminal import COMMAND, fitted

PAIR = ("--prefill", "tp=4", "--decode", "tp=2,order=nhd")
HYBRID = "nemotron-3-nano-30b"
COMMANDS: dict[str, tuple[str, ...]] = {
    "pair": ("explain", "llama-3.1-8b", *PAIR),
    "hybrid": ("explain", HYBRID, "--prefill", "tp=2", "--decode", "tp=4"),
    "stages": ("explain", "llama-3.1-8b", *PAIR, "--strategy", "auto"),
    "shards": ("explain", "deepseek-v3", "--prefill", "tp=2,dcp=2,block=32", "--decode", "tp=1,block=64"),
    "side": ("explain", HYBRID, "--prefill", "tp=2"),
    "model": ("explain", "deepseek-v4-flash"),
    "engine": ("explain", "vllm"),
    "kind": ("explain", "gqa"),
    "code": ("explain", "C110"),
    "metric": ("explain", "kvplan_posts"),
    "matrix": ("matrix", "llama-3.1-8b", "--prefill", "tp=1/2", "--decode", "tp=1/2/3,order=nhd"),
    "advise": ("advise", "qwen3-0.6b", "--prefill", "tp=1", "--decode", "tp=1,block=32", "--machine", "rdma-400g"),
    "list": ("list", "nemotron"),
    "check": ("check", str(ROOT / "layouts/models/nemotron-h.yaml")),
    "doctor": ("doctor", str(FIXTURES / "configs/gpt-oss-20b.json"), "--tp", "4", "--peer-tp", "2"),
    "refused": ("compile", "llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=2", "-o", "plans"),
    "unknown": ("explain", "llama-3.1-8c", *PAIR),
    "simulate": ("simulate", "qwen3-0.6b", "--prefill", "tp=1", "--decode", "tp=2"),
    "diff": ("diff", str(ROOT / "examples/plans/llama_3_1_8b"), str(ROOT / "examples/plans/qwen3_0_6b")),
}
# Lines of layout files, which are quoted as they are.
EXCERPT = " | "


def lines(columns: int, *words: str) -> list[str]:
    said = CliRunner(env={"COLUMNS": str(columns)}).invoke(main, list(words))
    assert said.exit_code in (0, 1, 2, 3), said.output
    return said.output.splitlines()


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", COMMANDS)
def test_answers_fit(name: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wide = [line for line in lines(columns, *COMMANDS[name]) if len(line) > columns]
    # A single word may be longer, and commands are pasted whole.
    assert [line for line in wide if " " in line.strip() and not COMMAND.search(line)] == []


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits(verb: str) -> None:
    assert [line for line in lines(80, *verb.split(), "--help") if len(line) > 80] == []


def test_a_sentence_goes_on_further_in_and_a_table_below_its_last_column() -> None:
    assert fitted("  note: one two three", 14) == "  note: one\n      two\n      three"
    assert fitted("a  b  one two three", 14) == "a  b  one two\n      three"


def test_json_is_not_wrapped() -> None:
    json.loads("\n".join(lines(80, "explain", HYBRID, "--format", "json")))
