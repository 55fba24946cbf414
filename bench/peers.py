"""kvplan beside what users would take instead: an engine's own connector, a loop over NIXL, memcpy.

The connector runs in an environment of its own, which KVPLAN_VLLM_ENV names, with kvplan beside it in one process.
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
# No words, no look at a hub, states as the connector asks for them, no GPU.
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_SSM_CONV_STATE_LAYOUT": "DS", "CUDA_VISIBLE_DEVICES": ""
}  # fmt: skip


def measure(pairs: int) -> list[Row]:
    return [*connector(os.environ.get("KVPLAN_VLLM_ENV", ""), pairs), *spans.measure(pairs)]


def connector(environment: str, pairs: int) -> list[Row]:
    """The rows that are measured in vLLM's environment, or why they are not."""
    python = Path(environment) / "bin" / "python"
    if not (environment and python.exists()):
        return [skipped(AREA, NEEDED)]
    with TemporaryDirectory() as folder:
        report = Path(folder) / "rows.json"
        if why := failure([str(python), "-m", PROGRAM, str(pairs), str(report)]):
            return [skipped(AREA, why)]
        return [Row(**row) for row in json.loads(report.read_text())]


def failure(command: list[str]) -> str:
    """Run a program that finds kvplan where this one does; the last it says where it fails, empty where it does not."""
    paths = [str(Path(kvplan.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{PROGRAM} took longer than {SECONDS:.0f} s"
    return (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1] if ended.returncode else ""
