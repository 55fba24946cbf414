"""Cases carried out in SGLang's environment, by a process of their own: what came of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
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
    """The outcome of a case: a word, the reasons if it is not good, and the seconds to the first tokens."""

    case: str
    word: str
    why: str = ""
    first: tuple[float, ...] = ()


def played(
    python: Path, folder: Path, cases: Iterable[Case], backend: str = KVPLAN, told: Mapping[str, str] | None = None
) -> list[Found]:
    """The outcomes of cases, without those that the process did not reach. Without `told` it finds packages itself."""
    found: list[Found] = []
    for triton, some in groupby(sorted(cases, key=lambda case: case.triton), lambda case: case.triton):
        own = {"PYTHONPATH": environment.paths(folder, *([environment.triton()] if triton else []))}
        own |= {"TRITON_INTERPRET": "1"} if triton else {}
        found += _played(python, folder, list(some), backend, own if told is None else told)
    return found


def _played(python: Path, folder: Path, cases: list[Case], backend: str, told: Mapping[str, str]) -> list[Found]:
    words = [str(python), "-W", "ignore", "-m", "tests.sglang.play", str(folder), backend, *(one.name for one in cases)]
    log, found = folder / "play.log", list[Found]()
    with log.open("w") as file:
        run = subprocess.Popen(
            words,
            env={**os.environ, "XDG_CACHE_HOME": str(folder), **told},
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
        end = threading.Timer(SECONDS_EACH * len(cases), run.kill)
        end.start()
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                found.append(Found(**{**said, "first": tuple(said["first"])}))
                print(": ".join(filter(None, (found[-1].case, found[-1].word, found[-1].why))), flush=True)
        run.wait()
        end.cancel()
    if len(found) < len(cases):
        print(log.read_text()[-2000:], file=sys.stderr)
    return found
