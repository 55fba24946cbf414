"""Random schedules among which a peer means harm: right bytes or an error in time, nothing raises, nothing is left."""

from __future__ import annotations

import random

import pytest
from tests.runtime.simulation.channels import Net, speak
from tests.runtime.simulation.hostile import Hostile, HostileDecode, HostilePrefill, LyingPrefill, Tapped
from tests.runtime.simulation.test_schedules import FIRST, SEEDS, TURNS


@pytest.mark.parametrize("kind", [HostileDecode, HostilePrefill, LyingPrefill])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 4))
def test_schedule(kind: type[Hostile], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(random.Random(-seed))
    speak(net, monkeypatch)
    one = kind(seed, net, Tapped(monkeypatch))
    one.play(TURNS)
    one.end()
