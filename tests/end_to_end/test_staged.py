"""The hardest cases by way of a stage, with buffers for everything and for next to nothing, over memory."""

from __future__ import annotations

from typing import Any

import pytest
from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.hardest import HARDEST
from tests.end_to_end.worlds import STAGE, move, world
from tests.shares import later

from kvplan.runtime import Counters
from kvplan.runtime.staging import staged
from kvplan.runtime.staging.buffers import BUFFERS

SMALL = BUFFERS * 512
SIZES = (STAGE, SMALL, 0)
WAYS = [("unpack", "pull", "read"), ("pack", "push", "write"), ("pack", "pull", "read"), ("unpack", "push", "write")]
CASES = [(name, *way, size) for name in HARDEST for way in WAYS for size in SIZES]
# One way and one size, others from case to case, so that every way meets every size; `make test-all` runs the rest.
NOW = [
    (name, *way, SIZES[(number + turn) % len(SIZES)])
    for number, name in enumerate(HARDEST)
    for turn, way in enumerate(WAYS)
    if (number + turn) % len(WAYS) == 0
]


@pytest.mark.parametrize(
    ("name", "strategy", "mode", "word", "size"), [*NOW, *later(case for case in CASES if case not in NOW)]
)
def test_every_byte(name: str, strategy: str, mode: str, word: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, in many pieces that are copied on the thread, and without a stage though the plan has ranges for one."""
    monkeypatch.setattr(staged, "AT_ONCE", 0 if size == SMALL else staged.AT_ONCE)
    case, counters = HARDEST[name], Counters()
    plan, both, asked = compiled(case, strategy), sides(case), requests(case)
    with world(plan, both, list(asked.values()), mode=mode, counters=counters, stage_bytes=size) as made:
        for request in ("cold", "prefix hit"):
            move(made, asked[request], request)
    counted: Any = counters.snapshot()["staged_bytes"]
    assert bool(counted[word]) == bool(size)
