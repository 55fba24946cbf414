"""`make sglang-gpu` where nothing can run: it says why, and ends with a code of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gpu_environment import CANNOT
from tests.sglang import gpu
from tests.sglang.cases import CASES, GPU_CASES


def test_without_an_environment_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv("KVPLAN_SGLANG_ENV", raising=False)
    assert gpu.main([]) == CANNOT
    assert "KVPLAN_SGLANG_ENV names no environment that has SGLang for GPUs" in capsys.readouterr().out


def test_a_machine_that_cannot_run_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 0 0.5.23\n")
    python.chmod(0o755)
    monkeypatch.setenv("KVPLAN_SGLANG_ENV", str(tmp_path))
    assert gpu.main([]) == CANNOT
    assert "no GPU is seen" in capsys.readouterr().out


def test_names_of_cases_are_told_apart() -> None:
    names = [case.name for case in (*CASES, *GPU_CASES)]
    assert len({*names}) == len(names)
