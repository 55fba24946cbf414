"""kvplan simulate-fleet: the example's answer, as text, JSON and pictures; what is refused, bad, or lacking."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvplan.cli import extras
from kvplan.cli.main import main

SMALL = """\
kvplan: 1
fleet: small
model: qwen3-0.6b
candidates:
  - {name: same, prefill: tp=1/2, decode: tp=1}
  - {prefill: tp=1, decode: "tp=1,order=nhd", strategy: auto, mode: push, layer_by_layer: true}
traffic: {trace: trace.jsonl}
"""
LINE = '{"timestamp": %d, "input_length": 900, "output_length": 5, "hash_ids": [1]}\n'


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "trace.jsonl").write_text("".join(LINE % (10 * number) for number in range(20)))
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate-fleet", *map(str, words)])


def test_the_answer_is_the_same_again(small: Path) -> None:
    """The example's is compared with its page, in tests/docs/test_operations_page.py."""
    result = run(small)
    assert result.exit_code == 0, result.output
    assert run(small).output == result.output


def test_json_has_every_pair_of_sides(small: Path) -> None:
    result = run(small, "--format", "json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert list(told) == ["fleet", "model", "machine", "requests", "candidates", "best", "refused"]
    named = ["same: tp=1 -> tp=1", "same: tp=2 -> tp=1", "tp=1 -> tp=1,order=nhd, auto, push, layer by layer"]
    assert [each["name"] for each in told["candidates"]] == named
    assert all((each["requests"], each["done"]) == (20, 20) for each in told["candidates"])
    assert told["best"]["name"] in named


def test_nothing_that_arrives_is_an_answer_too(small: Path) -> None:
    (small.parent / "trace.jsonl").write_text("")
    assert json.loads(run(small, "--format", "json").stdout)["candidates"][0]["first_token"]["p50"] is None
    result = run(small)
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "no pair answers anything")


def test_a_refused_pair_is_told_and_does_not_stop_others(small: Path) -> None:
    small.write_text(SMALL.replace("tp=1/2", "tp=1/3"))
    result = run(small)
    assert result.exit_code == 0
    assert "refused same: tp=3 -> tp=1" in result.output
    small.write_text(SMALL.replace("tp=1/2", "tp=3").replace("{prefill: tp=1,", "{prefill: tp=3,"))
    assert run(small).exit_code == 3


def test_a_bad_side_and_a_bad_line_are_told_with_their_place(small: Path) -> None:
    small.write_text(SMALL.replace("tp=1/2", "tq=1"))
    result = run(small)
    assert result.exit_code == 2
    assert "small.yaml:5:5: error[S005]: unknown side key" in result.output
    small.write_text(SMALL)
    (small.parent / "trace.jsonl").write_text("{}")
    result = run(small)
    assert result.exit_code == 2
    assert "trace.jsonl:1:1: error[S032]" in result.output


def test_limits_that_do_not_fit_are_an_error(small: Path) -> None:
    small.write_text(SMALL + "limits: {slice_bytes: 8, bytes_per_peer: 4}\n")
    result = run(small)
    assert result.exit_code == 2
    assert "error[R049]: slice_bytes is 8, above bytes_per_peer" in result.output


def test_an_extra_that_is_lacking_is_named(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    result = run(small)
    assert result.exit_code == 2
    assert "error[S033]: simpy is not installed\n   = pip install 'kvplan[simulate]'" in result.output


def test_a_picture_of_another_type_is_refused(small: Path) -> None:
    result = run(small, "--plot", "fleet.gif")
    assert result.exit_code == 2
    assert "fleet.gif is no .svg or .png" in result.output


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is an extra")
def test_pictures_are_drawn(small: Path) -> None:
    for suffix, begin in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        path = small.with_suffix(suffix)
        assert run(small, "--plot", path).exit_code == 0
        assert path.read_bytes().startswith(begin)
    assert b"layer by layer" in small.with_suffix(".svg").read_bytes()
