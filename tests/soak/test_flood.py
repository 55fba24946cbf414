"""Garbage at every door, in short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from tests.cluster.cluster import Cluster
from tests.cluster.setting import Setting
from tests.runtime.helpers.plans import Shape
from tests.soak.flood import flood, lies
from tests.soak.rounds import Draw, cluster

SETTING = Setting("prefill", prefill=Shape(1), decode=Shape(2), nixl=False, logical=90, lease=5.0, start=False)


@pytest.fixture(params=["pull", "push"])
def made(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(Draw(replace(SETTING, seed=5), request.param, 1, "memory"), Random(5)) as one:
        yield one


def test_requests_go_on_under_a_flood(made: Cluster) -> None:
    assert flood(made, 2000, Random(6)) == []


def test_a_liar_gets_a_named_error(made: Cluster) -> None:
    assert lies(made, 40, Random(7)) == []
    assert flood(made, 10, Random(8)) == []
