"""A short soak within this process: hundreds of requests, and some faults."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.cluster.load import Mix
from tests.shares import later
from tests.soak.figures import Figures
from tests.soak.rounds import Round, cluster, draw

SECONDS = 2.5


@pytest.mark.parametrize("seed", [1, *later([2, 3])])
def test_nothing_is_lost_wrong_or_leaked(seed: int) -> None:
    random, figures = Random(seed), Figures()
    drawn = draw(random, "memory", seed)
    with cluster(drawn, random) as made:
        Round(made, drawn, random, figures, Mix(at_once=24, timeouts=(0.02, 1.0, 3.0, 3.0))).play(SECONDS)
    assert not figures.bad, f"{drawn}\n" + "\n".join(figures.lines())
    assert figures.ended["done"]
    assert figures.injected


def test_figures_show_what_is_wrong() -> None:
    figures = Figures(begun=Counter({"pull": 1}))
    assert figures.bad
    figures.ended["done"] = 1
    assert not figures.bad
    figures.injected["cut"] += 1
    assert figures.bad
    figures.survived["cut"] += 1
    assert not figures.bad
    for kind in ("lost", "wrong", "leaked", "broken", "harmed"):
        getattr(figures, kind).append("r1")
        assert figures.bad
        assert f"{kind}: r1" in figures.lines()
        getattr(figures, kind).clear()
    figures.overrun = 1000.0
    assert figures.bad
