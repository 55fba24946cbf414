"""`make vllm-gpu` where nothing can run: it says why, and ends with a code of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gpu_environment import CANNOT
from tests.vllm import gpu
from tests.vllm.gpu import GPU_CASES


def test_without_an_environment_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv("KVPLAN_VLLM_ENV", raising=False)
    assert gpu.main([]) == CANNOT
    assert "KVPLAN_VLLM_ENV" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 0 0.33.0", "no GPU is seen"),
        ("echo its vLLM is for cpu", "its vLLM is for cpu"),
        ("echo 'No module named vllm' >&2; exit 1", "No module named vllm"),
    ],
)
def test_a_machine_that_cannot_run_it_says_why(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setenv("KVPLAN_VLLM_ENV", str(tmp_path))
    assert gpu.main([]) == CANNOT
    assert reason in capsys.readouterr().out


def test_an_environment_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("KVPLAN_VLLM_ENV", str(tmp_path / "none"))
    assert gpu.main([]) == CANNOT
    assert "cannot run" in capsys.readouterr().out


def test_names_of_cases_are_told_apart() -> None:
    assert len({each.case.name for each in GPU_CASES}) == len(GPU_CASES)


def test_a_case_that_is_not_for_a_machine_says_why() -> None:
    sleep = next(each for each in GPU_CASES if each.releases)
    widest = max(GPU_CASES, key=lambda each: each.gpus)
    assert "0.33" in gpu.unfit(sleep, 8, "0.33.0")
    assert not gpu.unfit(sleep, 1, "0.32.0+cu129")
    assert "GPUs are needed" in gpu.unfit(widest, 1, "0.32.0")
