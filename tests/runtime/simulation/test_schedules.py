"""Random schedules of everything that can happen between engines: right bytes or an error, in time, nothing left."""

from __future__ import annotations

import os
import random

import pytest
from tests.runtime.simulation.channels import Net, speak
from tests.runtime.simulation.schedules import Schedule

SEEDS = int(os.environ.get("SCHEDULES", "16"))
FIRST = int(os.environ.get("FIRST_SCHEDULE", "0"))
TURNS = 250


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_schedule(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(random.Random(-seed))
    speak(net, monkeypatch)
    one = Schedule(seed, net)
    one.play(TURNS)
    one.end()
