"""kvplan beside its alternatives: an engine's own connector, a loop over NIXL, memcpy.

The connector runs in the environment that KVPLAN_VLLM_ENV names, with kvplan beside it in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import kvplan
from kvplan.bench import spans
from kvplan.bench.report import Row, skipped

AREA, PROGRAM, SECONDS = "block lists to posted ids, vLLM", "kvplan.bench.vllm_lists", 600.0
NEEDED = "KVPLAN_VLLM_ENV names no environment: `make vllm` makes one"
# Quiet, offline, states in the connector's form, no GPU.
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_SSM_CONV_STATE_LAYOUT": "DS", "CUDA_VISIBLE_DEVICES": ""
}  # fmt: skip


def measure(pairs: int) -> list[Row]:
    return [*connector(os.environ.get("KVPLAN_VLLM_ENV", ""), pairs), *spans.measure(pairs)]


def connector(environment: str, pairs: int) -> list[Row]:
    """Return the rows measured in vLLM's environment, or the reason why there are none."""
    python = Path(environment) / "bin" / "python"
    if not (environment and python.exists()):
        return [skipped(AREA, NEEDED)]
    with TemporaryDirectory() as folder:
        report = Path(folder) / "rows.json"
        if why := failure([str(python), "-m", PROGRAM, str(pairs), str(report)]):
            return [skipped(AREA, why)]
        return [Row(**row) for row in json.loads(report.read_text())]


def failure(command: list[str]) -> str:
    """Run a program that finds this kvplan. Return its last line if it fails, empty if it does not."""
    paths = [str(Path(kvplan.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{PROGRAM} took longer than {SECONDS:.0f} s"
    return (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1] if ended.returncode else ""
