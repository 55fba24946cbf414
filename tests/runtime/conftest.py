"""Fixtures of the runtime's tests: a network without sockets, a clock, and a worker with a caller."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.runtime.helpers import worlds
from tests.runtime.helpers.callers import ONE, Caller
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.steered import Clock
from tests.runtime.helpers.worlds import PREFILL, memory
from tests.runtime.simulation.channels import Net, speak

from kvplan.runtime import InMemory, Plain, PrefillWorker, views
from kvplan.runtime.transport.inmemory import Hub


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all that a test has made by `world` at its end, so that no test has to."""
    worlds.opened = []
    yield
    for one in worlds.opened:
        one.close()
    worlds.opened = None


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    """A network without delays for all workers that are made from now on."""
    made = Net(random.Random(0), slow=0)
    speak(made, monkeypatch)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> Iterator[PrefillWorker]:
    pool = views(ONE.prefill, 0, memory(Shape(1), Model(), 0))
    made = PrefillWorker(
        ONE, 0, pool, InMemory(Hub()), identity=PREFILL, keys=Plain(), clock=clock, lease=10, start=False
    )
    made.announce([made.address])
    yield made
    made.close()


@pytest.fixture
def caller(worker: PrefillWorker) -> Iterator[Caller]:
    made = Caller(worker)
    yield made
    made.line.close()
