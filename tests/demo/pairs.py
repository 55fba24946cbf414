"""Pairs for the demo's tests, their models made small, and what a decode worker's memory must be."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from tests.layouts import shrink
from tests.paths import ROOT

from kvplan.compiler.api import Compiled
from kvplan.demo import requests as demo_asked
from kvplan.demo import run as demo_run
from kvplan.demo.content import arrived, stamp
from kvplan.demo.memory import DemoMemory, allocate
from kvplan.demo.requests import RequestShare
from kvplan.demo.worker import FetchReport
from kvplan.dsl.library import Library, load

EXAMPLES = ROOT / "examples" / "models"
SECONDS = 90.0


@cache
def library() -> Library:
    return load(sorted(EXAMPLES.glob("*.yaml")))


@cache
def scaled(model: str, prefill: str, decode: str) -> Compiled:
    """A pair of sides of a model with few layers and short vectors."""
    return shrink.compiled(library(), shrink.shrunk(library(), library().model(model)), prefill, decode)


def ready(made: Compiled) -> tuple[RequestShare, DemoMemory, DemoMemory]:
    """The share of decode worker 0, its memory as it must be after a transfer, and as it was before."""
    _, (share, *_) = demo_asked.shares(made)
    memory = untouched(made, share)
    stamp(share, arrived, memory.planes)
    return share, memory, untouched(made, share)


def untouched(made: Compiled, share: RequestShare) -> DemoMemory:
    """The memory of a decode worker before a transfer, the same each time."""
    return allocate(made.plan.decode, share.number, share.tables, seed=3)


def moved(made: Compiled, folder: Path, transport: str = "memory", seconds: float = SECONDS) -> list[FetchReport]:
    """Run the demo and return its decode workers' reports. Raises ProcessError if one holds a wrong byte."""
    path = folder / "plan.py"
    path.write_text(made.text)
    said: list[str] = []
    outcomes = demo_run.run(made, path, transport, time.monotonic() + seconds, said.append)
    assert len(said) == demo_run.steps(made)
    return outcomes
