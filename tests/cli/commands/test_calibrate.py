"""kvplan calibrate: a file of this machine that can be read, and none that is lost."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.demo.test_demo import needs_nixl

from kvplan.cli.main import main
from kvplan.dsl.library import load

TINY = ("--rounds", "1", "--mib", "1")


def has_vram() -> bool:
    """Asked by the test itself: to import torch takes every worker seconds."""
    return importlib.util.find_spec("torch") is not None and importlib.import_module("torch").cuda.is_available()


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["calibrate", *words])
    return result.exit_code, result.output


@needs_nixl
def test_a_machine_is_measured_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    code, output = run("-o", str(path), *TINY)
    assert code == 0, output
    found = load([path]).machine("ours")
    assert min(found.wire, *(copy.rate for copy in found.copies)) > 0
    assert "medians of 1 rounds of 1 MiB" in found.says
    assert "two processes of one machine" in found.says
    assert "between hosts, a network card takes other times" in output


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("kept")
    code, output = run("-o", str(path), *TINY)
    assert code == 2
    assert "S030" in output
    assert path.read_text() == "kept"


@needs_nixl
def test_memory_that_there_is_not_is_told() -> None:
    if has_vram():
        pytest.skip("there is a GPU")
    code, output = run("--memory", "vram", *TINY)
    assert code == 2
    assert "S031" in output
