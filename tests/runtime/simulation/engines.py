"""A prefill engine and decode engines in one thread, on one clock, with what chance decides of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.runtime.helpers.plans import Bytes, Model, Shape, plan, with_ranges
from tests.runtime.helpers.steered import Flag
from tests.runtime.helpers.worlds import Truth, memory
from tests.runtime.simulation.channels import Net, Transport
from tests.runtime.simulation.invariants import right

from kvplan.plan.errors import KvplanError
from kvplan.runtime import DecodeWorker, Identity, Limits, Plain, PrefillWorker, Request, Transfer, views
from kvplan.runtime.staging.buffers import BUFFERS
from kvplan.runtime.transport.inmemory import Hub

SHAPES = [(Shape(2), Shape(1)), (Shape(1), Shape(2)), (Shape(2), Shape(2)), (Shape(2, kernel=6), Shape(1, ratio=2))]
LEASE = 0.4
LIMITS = [Limits(), Limits(200, 300, 100, 64), Limits(64, 64, 64, 5), Limits(1000, 1500, 300, 8)]
ROOM = 40
# The strategies that use a stage, and the bytes of a buffer: 64 are a page of a layer, or a state.
STAGED = [(), (), ("unpack",), ("pack",), ("unpack", "pack")]
BUFFER = [0, 64, 64, 128, 1024]


@dataclass(eq=False)
class Work:
    """A request as the caller of the prefill engine knows it. `held` are the workers that hold it.

    A name may be held `again` in other blocks: that is `later`.
    """

    name: str
    end: int
    tables: dict[str, Any]
    fed: bool
    content: Truth
    again: bool
    later: Work | None = None
    held: set[int] = field(default_factory=set)
    chunks: dict[int, list[tuple[tuple[int, int], tuple[int, ...] | None]]] = field(default_factory=dict)


@dataclass(eq=False)
class Engine:
    """A decode engine: its workers, their memory, and which blocks its caller has given to whom."""

    name: str
    mode: str
    workers: list[DecodeWorker]
    arrays: list[dict[str, Bytes]]
    free: list[set[int]]
    asked: list[tuple[Transfer, int, Request, Work]] = field(default_factory=list)
    kept: list[tuple[int, Request, Work]] = field(default_factory=list)


class Engines:
    """A prefill engine and its decode engines, how they begin, meet and end, and what their callers know."""

    def __init__(self, seed: int, net: Net, turn: Callable[[], None]) -> None:
        self.draw = draw = random.Random(seed)
        self.net, self.hub = net, Hub()
        self.net.turn = turn
        self.net.duplicates, self.net.fail = draw.choice((0, 0.05)), draw.choice((0, 0, 0.03))
        self.shapes, self.model = draw.choice(SHAPES), Model(state=draw.random() < 0.7)
        direct = plan(*self.shapes, self.model)
        self.plan = with_ranges(direct, *draw.choice(STAGED))
        self.faults, self.drawn = draw.choice((0, 0.03, 0.08)), draw.random() < 0.4
        self.prefill: list[PrefillWorker] = []
        self.prefill_arrays: list[dict[str, Bytes]] = []
        self.works: dict[str, Work] = {}
        self.flags: list[Flag] = []
        self.free, self.runs, self.done, self.ended = set(range(ROOM)), 0, 0, 0
        self.idle: set[Any] = set()
        self.names = itertools.count()
        self.wrong: AssertionError | None = None
        self.start_prefill()
        self.engines = [self.start_decode(f"d{n}", draw.choice(("pull", "push"))) for n in range(draw.choice((1, 2)))]

    def start_prefill(self) -> None:
        self.runs += 1
        self.prefill_arrays = [memory(self.shapes[0], self.model, n) for n in range(self.shapes[0].workers)]
        self.prefill, self.works, self.free = [], {}, set(range(ROOM))
        for number, arrays in enumerate(self.prefill_arrays):
            transport = Transport(self.net, self.hub, f"p{number}")
            self.prefill.append(
                PrefillWorker(
                    self.plan,
                    number,
                    views(self.plan.prefill, number, arrays),
                    transport,
                    start=False,
                    lease=LEASE,
                    identity=Identity("prefill", f"p{self.runs}"),
                    keys=Plain(),
                    limits=self.draw.choice(LIMITS),
                    stage_bytes=BUFFERS * self.draw.choice(BUFFER),
                    clock=self.net.now,
                )
            )
        for worker in self.prefill:
            worker.announce([one.address for one in self.prefill])

    def start_decode(self, name: str, mode: str) -> Engine:
        self.runs += 1
        arrays = [memory(self.shapes[1], self.model, n) for n in range(self.shapes[1].workers)]
        workers = [
            DecodeWorker(
                self.plan,
                n,
                views(self.plan.decode, n, one),
                Transport(self.net, self.hub, f"{name}{n}"),
                identity=Identity(name, f"{name}-{self.runs}"),
                keys=Plain(),
                limits=self.draw.choice(LIMITS),
                stage_bytes=BUFFERS * self.draw.choice(BUFFER),
                clock=self.net.now,
            )
            for n, one in enumerate(arrays)
        ]
        made = Engine(name, mode, workers, arrays, [set(range(ROOM)) for _ in workers])
        for worker in workers:
            self.connect(made, worker)
        return made

    def connect(self, engine: Engine, worker: DecodeWorker) -> None:
        try:
            worker.connect(self.prefill[0].address, 1.0, mode=engine.mode)
        except KvplanError:
            assert self.faults, "nothing was done to it"

    def soil(self, number: int, work: Work) -> None:
        arrays, ratio = self.prefill_arrays[number], self.shapes[0].ratio
        for plane, array in arrays.items():
            if plane.startswith("kv"):
                for block in work.tables["kv"].ids:
                    array[block * ratio : (block + 1) * ratio] = self.draw.randint(0, 255)
            else:
                array[work.tables["state"].slot] = self.draw.randint(0, 255)

    def sleep(self, worker: Any) -> None:
        """Give the memory back and take it again if nothing is in progress."""
        try:
            worker.suspend()
        except KvplanError:
            return
        worker.run_once()
        for engine in self.engines:
            if worker in engine.workers:
                number = engine.workers.index(worker)
                worker.resume(views(self.plan.decode, number, engine.arrays[number]))
                return
        number = self.prefill.index(worker)
        worker.resume(views(self.plan.prefill, number, self.prefill_arrays[number]))

    def meet(self) -> None:
        for engine in self.engines:
            for worker in engine.workers:
                if not worker.peers() and worker not in self.idle:
                    self.connect(engine, worker)

    def close(self, engine: Engine) -> None:
        for worker in engine.workers:
            self.idle.discard(worker)
            worker.close()
            assert (worker.running(), worker.quarantined()) == (0, {})
        for one in engine.kept:
            right(self, engine, *one)

    def event(self) -> Flag:
        self.flags.append(Flag())
        return self.flags[-1]

    def cuts(self, end: int) -> list[tuple[tuple[int, int], tuple[int, ...] | None]]:
        edges = sorted({0, end, *(self.draw.randint(0, end) for _ in range(2))})
        found: list[tuple[tuple[int, int], tuple[int, ...] | None]] = []
        for one in pairwise(edges):
            found += [(one, (3,)), (one, (7,))] if self.draw.random() < 0.5 else [(one, None)]
        return found
