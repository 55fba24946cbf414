"""kvplan trace: of a model and two sides or of a plan on disk, for a request from a file or made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main

SIDES = ("--prefill", "tp=2", "--decode", "tp=1")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def plan(tmp_path: Path) -> str:
    assert run("compile", "qwen3-0.6b", *SIDES, "-o", str(tmp_path)).exit_code == 0
    return str(next(tmp_path.rglob("p_*.py")))


def test_a_plan_is_traced_as_its_pair_is(plan: str) -> None:
    words = ("--tokens", "3:40", "--seed", "7", "--format", "json")
    of_plan, of_pair = run("trace", plan, *words), run("trace", "qwen3-0.6b", *SIDES, *words)
    assert of_plan.exit_code == 0
    assert json.loads(of_plan.stdout) == json.loads(of_pair.stdout)


def test_a_plan_that_layouts_make_otherwise_by_now_is_refused(plan: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    model = 'model="qwen3-0.6b"'
    text = Path(plan).read_text()
    assert model in text
    other.write_text(text.replace(model, 'model="llama-3.1-8b"'))
    said = run("trace", str(other), "--tokens", "0:40")
    assert (said.exit_code, "is not what layout files make of its pair now" in said.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("qwen3-0.6b", "--tokens", "0:40"), "give --prefill SIDE and --decode SIDE, or the path of a plan"),
        (("qwen3-0.6b", *SIDES, "--tokens", "40:40"), "is not FIRST:END"),
        (("qwen3-0.6b", *SIDES, "--tokens", "0:40", "--request", __file__), "give --request or --tokens"),
    ],
)
def test_what_is_missing_or_too_much_is_said(words: tuple[str, ...], why: str) -> None:
    said = run("trace", *words)
    assert (said.exit_code, why in said.output) == (2, True)


def test_a_plan_has_its_own_sides(plan: str) -> None:
    said = run("trace", plan, "--prefill", "tp=2", "--tokens", "0:40")
    assert (said.exit_code, "a plan has its own sides and options" in said.output) == (2, True)


@pytest.mark.parametrize("command", ["trace", "simulate"])
def test_a_plan_of_an_own_model_says_what_finds_its_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan's place on the command line is taken: no path of a model's file can be given beside it."""
    here = tmp_path / "repository"
    (here / "models").mkdir(parents=True)
    monkeypatch.chdir(here)
    Path("models/ours.yaml").write_text(
        "kvplan: 1\nmodel: ours\ntitle: Ours\ndtype: bf16\nlayers: 2\nquery_heads: 4\n"
        "caches:\n  full: {kind: gqa, layers: all, heads: 4, dim: 64}\n"
    )
    assert run("compile", "models/ours.yaml", *SIDES).exit_code == 0
    words = (command, "plans/ours/p_tp2__d_tp1.py")
    said = run(*words)
    assert said.exit_code == 2
    assert "models/ours.yaml is not read: give --layouts models\n" in said.stderr
    assert run(*words, "--layouts", "models").exit_code == 0
