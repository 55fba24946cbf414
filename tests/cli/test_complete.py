"""Completions, requested the way that a shell requests them."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from kvplan.cli.main import main


def completed(*words: str) -> list[str]:
    *before, last = words
    shell = ShellComplete(main, {}, "kvplan", "_KVPLAN_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), last)]


@pytest.mark.parametrize("verb", ["compile", "simulate", "trace", "audit", "matrix", "explain"])
def test_models(verb: str) -> None:
    assert "llama-3.1-8b" in completed(verb, "llama-")
    assert all(name.startswith("llama-") for name in completed(verb, "llama-"))


def test_commands_and_options() -> None:
    assert completed("comp") == completed("help", "comp") == ["compile"]
    assert "--prefill" in completed("compile", "--pre")
    assert "--accept-doubts" in completed("new", "--acc")


def test_engines_and_kinds_are_explained() -> None:
    assert completed("explain", "sgl") == ["sglang"]
    assert completed("explain", "gq") == ["gqa"]


@pytest.mark.parametrize(
    ("begun", "among"),
    [
        ("t", "tp="),
        ("tp=4,or", "tp=4,order="),
        ("tp=4,order=LBH", "tp=4,order=LBHNC"),
        ("engine=sgl", "engine=sglang"),
        ("engine=sglang,order=n", "engine=sglang,order=nhd"),
    ],
)
def test_sides(begun: str, among: str) -> None:
    found = completed("compile", "llama-3.1-8b", "--prefill", begun)
    assert among in found
    assert all(value.startswith(begun) for value in found)


def test_a_key_is_given_once() -> None:
    assert "tp=4,tp=" not in completed("compile", "x", "--decode", "tp=4,")


def test_values_of_compile_options() -> None:
    assert completed("compile", "x", "--elect", "sp") == ["spread"]
