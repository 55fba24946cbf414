"""An engine's environment for GPUs, which a variable names, and how many of them it sees."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CANNOT = 3
COUNT_S = 300


class CannotRunError(Exception):
    """A GPU, or an engine for one, is missing; the text says which."""


def machine(variable: str, engine: str, count: str) -> tuple[Path, int, str]:
    """The Python of an engine's environment, how many GPUs it sees, and its release. Raises CannotRunError.

    The script `count` prints both numbers, or why there is neither.
    """
    named = os.environ.get(variable)
    if not named:
        raise CannotRunError(f"{variable} names no environment that has {engine} for GPUs")
    python = Path(named) / "bin" / "python"
    try:
        said = subprocess.run([python, "-c", count], capture_output=True, text=True, check=True, timeout=COUNT_S)
    except subprocess.CalledProcessError as error:
        raise CannotRunError(f"{python}: {error.stderr.strip().splitlines()[-1]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRunError(f"{python}: {error}") from error
    line = said.stdout.strip().splitlines()[-1]
    gpus, _, release = line.partition(" ")
    if not gpus.isdecimal() or int(gpus) == 0:
        raise CannotRunError(f"{python}: {'no GPU is seen' if gpus == '0' else line}")
    return python, int(gpus), release


def visible(gpus: int) -> dict[str, str]:
    """The GPUs that the caller lets be seen; engines on cores see none."""
    every = ",".join(map(str, range(gpus)))
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", every)}
