"""Harmless loads in short: bursts, names held again, fed hybrids, silent connections."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.cluster.setting import Setting
from tests.runtime.helpers.plans import Shape
from tests.soak.faults import GOOD, SPARE
from tests.soak.figures import Figures
from tests.soak.rounds import Draw, Round, cluster

SETTING = Setting("prefill", prefill=Shape(2), decode=Shape(1), nixl=False, logical=400, lease=60.0, start=False)


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("kind", GOOD)
def test_no_good_request_fails(kind: str, mode: str) -> None:
    random, figures, drawn = Random(1), Figures(), Draw(replace(SETTING, seed=1), mode, 2, "memory")
    with cluster(drawn, random) as made:
        playing = Round(made, drawn, random, figures)
        playing.strike(kind, GOOD[kind])
        playing.rest()
    figures.add(made.tally)
    assert not figures.bad, "\n".join(figures.lines())
    assert figures.good >= 2


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_a_restart_under_hundreds_of_requests(mode: str) -> None:
    random, figures = Random(2), Figures()
    drawn = Draw(replace(SETTING, seed=2, lease=10.0, logical=200 + SPARE), mode, 2, "memory")
    with cluster(drawn, random) as made:
        Round(made, drawn, random, figures).restart()
    assert not figures.bad, "\n".join(figures.lines())
    assert figures.begun.total() > 200
