"""Random schedules of everything that can happen between engines: right bytes or an error, in time, nothing left."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from tests.paths import ROOT
from tests.runtime.simulation.channels import Net, speak
from tests.runtime.simulation.schedules import Schedule
from tests.shares import later

SEEDS = int(os.environ.get("SCHEDULES", "8"))
FIRST = int(os.environ.get("FIRST_SCHEDULE", "0"))
TURNS = 250


@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + SEEDS), *later(range(FIRST + SEEDS, FIRST + 2 * SEEDS))])
def test_schedule(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    played(seed, monkeypatch)


def test_a_seed_is_one_schedule_however_texts_are_hashed() -> None:
    """The order of a set must change nothing, so that a failed schedule can be repeated."""
    words = [sys.executable, "-c", f"from {__name__} import last; print(last(7))"]
    kept = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))}
    runs = [subprocess.run(words, env=kept | {"PYTHONHASHSEED": seed}, capture_output=True) for seed in "12"]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr.decode()
    assert runs[0].stdout == runs[1].stdout


def last(seed: int) -> float:
    """A number that is drawn when a schedule has ended."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return played(seed, monkeypatch).draw.random()


def played(seed: int, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    net = Net(random.Random(-seed))
    speak(net, monkeypatch)
    one = Schedule(seed, net)
    one.play(TURNS)
    one.end()
    return one
