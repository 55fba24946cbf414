"""Cases carried out in SGLang's environment, by a process of their own: what came of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.sglang import environment
from tests.sglang.cases import Case
from tests.sglang.table import KVPLAN

GOOD = ("right", "refused", "pools are as derived")
SECONDS_EACH = 300


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a case: a word, the reasons if it is not good, and seconds until first tokens came."""

    case: str
    word: str
    why: str = ""
    first: tuple[float, ...] = ()


def played(
    python: Path, folder: Path, cases: Iterable[Case], backend: str = KVPLAN, told: Mapping[str, str] | None = None
) -> list[Found]:
    """What came of cases; one that its process did not come to is missing. Without `told` it finds packages itself."""
    found: list[Found] = []
    for triton, some in groupby(sorted(cases, key=lambda case: case.triton), lambda case: case.triton):
        own = {"PYTHONPATH": environment.paths(folder, *([environment.triton()] if triton else []))}
        own |= {"TRITON_INTERPRET": "1"} if triton else {}
        found += _played(python, folder, list(some), backend, own if told is None else told)
    return found


def _played(python: Path, folder: Path, cases: list[Case], backend: str, told: Mapping[str, str]) -> list[Found]:
    done = subprocess.run(
        [str(python), "-W", "ignore", "-m", "tests.sglang.play", str(folder), backend, *(case.name for case in cases)],
        env={**os.environ, "XDG_CACHE_HOME": str(folder), **told}, capture_output=True, text=True,
        timeout=SECONDS_EACH * len(cases),
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(lines) < len(cases):
        print(done.stderr[-2000:], file=sys.stderr)
    return [Found(**{**line, "first": tuple(line["first"])}) for line in lines]
