"""One round of a soak: engines of a drawn pair of sides, requests, one fault after another, and a reckoning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from tests.cluster import hosts
from tests.cluster.cluster import Cluster, Job
from tests.cluster.engine import Engine
from tests.cluster.faults import EVERYWHERE, HOSTS, Fault
from tests.cluster.leaks import leaks, looks
from tests.cluster.load import Load, Mix
from tests.cluster.process import Lost
from tests.cluster.setting import Setting, pairs
from tests.runtime.helpers.plans import Shape
from tests.soak.faults import GOOD, LONG, restart
from tests.soak.figures import Figures

from kvplan.runtime.transport.inmemory import Hub

SHAPES = (Shape(1), Shape(2), Shape(1, kernel=2, ratio=2), Shape(2, kernel=8), Shape(2, tail=8))
SMALL = {"slice_bytes": 128, "bytes_per_peer": 512, "bytes_total": 1024}
LIMITS: tuple[dict[str, int], ...] = ({}, SMALL, {"requests": 10})
LEASE, PROBE, REST = 4.0, 10.0, 20.0
# Faults that fail no request by mistake.
HARMLESS = {*GOOD, "garbage"}


@dataclass(frozen=True, slots=True)
class Draw:
    """The settings of a round."""

    setting: Setting
    mode: str
    decodes: int
    where: str
    secure: bool = False

    def __str__(self) -> str:
        one = self.setting
        sides = f"{one.prefill} -> {self.decodes} x {one.decode}"
        rest = f"limits {one.limits}, keys {self.secure}"
        return f"{self.where}, {self.mode}, {sides}, {rest}"


def draw(random: Random, where: str, seed: int) -> Draw:
    """`where` is processes, hosts or memory."""
    setting = Setting(
        "prefill",
        prefill=random.choice(SHAPES),
        decode=random.choice(SHAPES),
        nixl=where != "memory",
        logical=400,
        lease=LEASE,
        start=where != "memory",
        limits=random.choice(LIMITS),
        odds={"slow": 0.2, "refused": 0.005},
        seed=seed,
    )
    mode, decodes, secure = random.choice(("pull", "push")), random.choice((1, 1, 2)), random.random() < 0.4
    return Draw(setting, mode, decodes, where, secure)


@contextmanager
def cluster(drawn: Draw, random: Random) -> Iterator[Cluster]:
    """Engines that are connected, and nothing of them afterwards."""
    many, keys = 1 + drawn.decodes, pairs(drawn.secure)
    with _places(drawn.where, many) as places:
        hub = Hub() if drawn.where == "memory" else None
        engines: list[Engine] = []
        try:
            for number, place in enumerate(places):
                role = "decode" if number else "prefill"
                limits = {kind: most for kind, most in drawn.setting.limits.items() if number or kind != "requests"}
                setting = replace(drawn.setting, role=role, name=f"{role}-{number}", limits=limits, keys=keys[role])
                engines.append(Engine(setting, random, hub, place))
            made = Cluster(engines[0], engines[1:], random, drawn.mode)
            for word in made.connect(30):
                assert word["ok"], word["text"]
            yield made
        finally:
            for engine in engines:
                engine.close()


@contextmanager
def _places(where: str, many: int) -> Iterator[list[hosts.Host | None]]:
    if where != "hosts":
        yield [None] * many
        return
    with hosts.hosts(many) as made:
        yield list(made)


class Round:
    """Requests run all the time. After each fault one more is sent, which has to be done."""

    def __init__(self, made: Cluster, drawn: Draw, random: Random, figures: Figures, mix: Mix | None = None) -> None:
        self.cluster, self.random, self.figures = made, random, figures
        self.load = Load(made, random, mix or Mix())
        self.pause = 0.0 if drawn.where == "memory" else 0.001
        self.faults = {**EVERYWHERE, **GOOD, **(HOSTS if drawn.where == "hosts" else {})}

    def play(self, seconds: float, most: int = 1 << 60) -> None:
        """Warm up, play until the time or the requests are over, then rest and compare."""
        self._requests(min(2.0, seconds / 5))
        self._fed_by_layers()
        self.rest()
        before, until = looks(self._engines()), time.monotonic() + seconds
        try:
            while time.monotonic() < until and self.cluster.tally.begun.total() < most and not self.figures.lost:
                self._requests(self.random.uniform(0.2, 1.0))
                self.strike(*self.random.choice(sorted(self.faults.items())))
            self.rest()
            self.figures.leaked += leaks(before, looks(self._engines()))
        finally:
            self.figures.add(self.cluster.tally)

    def restart(self) -> None:
        """Restart one side while very many requests are in progress."""
        try:
            self.strike("restart under 1,000 requests", restart)
            self.rest()
        finally:
            self.figures.add(self.cluster.tally)

    def _requests(self, seconds: float, begin: bool = True) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.load.step(begin)
            time.sleep(self.pause)
        self.figures.lost += self.load.lost(time.monotonic())

    def strike(self, kind: str, fault: Fault) -> None:
        """Run a fault while requests are in progress and none begins. A harmless fault fails no good request."""
        self.figures.injected[kind] += 1
        witnesses = self._witnesses() if kind in HARMLESS else []
        try:
            for pause in fault(self.cluster, None, self.random):
                self._requests(pause, begin=False)
            self.cluster.good(witnesses)
            self.figures.survived[kind] += self._probe(kind)
        except (AssertionError, Lost) as error:
            self.figures.broken.append(f"{kind}: {error}")
            raise

    def _fed_by_layers(self) -> None:
        """Lists for single layers are prepared when they are first fed: later they would look like a leak."""
        for which in range(len(self.cluster.decode)):
            job = self.cluster.begin((0, 40), LONG, decode=which, fed=True, layered=True)
            if job is not None:
                self.cluster.feed(job, 40)
                self.cluster.finish(job)

    def _witnesses(self) -> list[Job]:
        """Requests without a fault that are in progress meanwhile."""
        late = self.random.choice((0, 50, 500))
        every = range(len(self.cluster.decode))
        begun = [self.cluster.begin((0, 40), LONG, late, decode=which) for which in every]
        return [job for job in begun if job is not None]

    def _probe(self, kind: str) -> bool:
        """A request that nothing is wrong with is done."""
        until, state = time.monotonic() + PROBE, "not begun: no free blocks"
        while time.monotonic() < until:
            job = self.cluster.begin((0, 40), 5.0, decode=self.random.randrange(len(self.cluster.decode)))
            if job is not None:
                state = self.cluster.finish(job)
                if state == "done":
                    return True
            self._requests(0.2, begin=False)
        self.figures.broken.append(f"after {kind}, a request is {state}: {job and job.outcomes}")
        return False

    def rest(self) -> None:
        """Wait until nothing is in progress and every block is free again."""
        until = time.monotonic() + REST
        while self.cluster.jobs and time.monotonic() < until:
            self.load.step(begin=False)
            time.sleep(self.pause)
        self.figures.leaked += [f"blocks: {text}" for text in self.cluster.settle(0)]
        self.figures.wrong += self.cluster.audit()

    def _engines(self) -> list[Engine]:
        return [self.cluster.prefill, *self.cluster.decode]
