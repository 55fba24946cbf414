"""The connector against the scheduler, block pool and aggregator of several releases of vLLM: no model, no GPU."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.paths import ROOT
from tests.vllm import environment, installed, releases
from tests.vllm.process import ENVIRONMENT

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm")]
TIMEOUT_S = 900
# Settings of an engine on a CPU with the layout of its own connector.
MORE = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"}
CHECKS = (
    "load",
    "whole_hit",
    "abort_while_loading",
    "abort_before_it_is_scheduled",
    "abort_on_prefill",
    "failure_recompute",
    "failure_fail",
    "preemption",
    "one_that_does_not_decode",
    "sleep",
    "sleep_while_it_is_held",
)


@cache
def faults(release: str, folder: Path) -> dict[str, str]:
    """By check what went wrong, empty where nothing did."""
    try:
        python, first = environment.cached(), releases.cached(release)
    except environment.UnavailableError as reason:
        pytest.skip(str(reason))
    installed.describe(folder)
    paths = os.pathsep.join(path for path in (first, str(ROOT), str(ROOT / "src"), str(folder)) if path)
    done = subprocess.run(
        [str(python), "-m", "tests.vllm.interface_checks", str(folder)],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT, **MORE, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    version, *told = [json.loads(line) for line in done.stdout.splitlines()] or [{}]
    assert version == {"version": release}, done.stderr[-2000:]
    return {each["check"]: each["fault"] for each in told}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("release", releases.PACKAGES)
def test_the_connector_in_this_release(release: str, check: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / f"vllm-{release}"
    folder.mkdir(exist_ok=True)
    found = faults(release, folder)
    assert found.keys() == set(CHECKS)
    assert not found[check], found[check]
