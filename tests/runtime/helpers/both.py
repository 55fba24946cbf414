"""Two engines that prefill and decode, in this process: each has one worker with both halves over one endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.runtime.helpers.plans import Bytes, Model, Shape, plan, with_ranges
from tests.runtime.helpers.worlds import expect, fill, memory, tables, truth

from kvplan.plan.types import Plan
from kvplan.runtime import DecodeWorker, Hub, Identity, InMemory, Nixl, Plain, PrefillWorker, Request, Transfer, views
from kvplan.runtime.control.keys import Keys
from kvplan.runtime.inspection import ConnectionState

MODEL = Model()
TOKENS = 21


@dataclass(slots=True)
class Both:
    """An engine that does both: its shape, its memory, and its workers' halves."""

    name: str
    shape: Shape
    plans: tuple[Plan, ...]
    arrays: list[dict[str, Bytes]]
    prefill: list[PrefillWorker]
    decode: list[DecodeWorker]
    keys: Keys | Plain

    @property
    def address(self) -> str:
        return self.prefill[0].address

    def connections(self) -> set[ConnectionState]:
        """The connections of the engine's first worker."""
        return set(self.prefill[0].inspect().connections)

    def close(self) -> None:
        for worker in self.decode:
            worker.close()


@dataclass(slots=True)
class Engines:
    """Engines that may load from each other, by plans of both directions."""

    ways: tuple[str, ...]
    nixl: bool = False
    hub: Hub = field(default_factory=Hub)
    made: list[Both] = field(default_factory=list)

    def engine(self, name: str, run: str, shapes: tuple[Shape, Shape], **options: Any) -> Both:
        """An engine of the first shape, whose peers have the second one."""
        shape, other = shapes
        plans = tuple(self.plan(*pair) for pair in ((shape, other), (other, shape)))
        keys = options.pop("keys", Plain())
        arrays = [memory(shape, MODEL, number) for number in range(shape.workers)]
        prefill = [self._worker(name, run, plans, number, each, keys, options) for number, each in enumerate(arrays)]
        decode = [DecodeWorker.beside(worker) for worker in prefill]
        for worker in prefill:
            worker.announce([each.address for each in prefill])
        self.made.append(Both(name, shape, plans, arrays, prefill, decode, keys))
        return self.made[-1]

    def plan(self, prefill: Shape, decode: Shape) -> Plan:
        made = plan(prefill, decode, MODEL)
        return with_ranges(made, *self.ways) if self.ways else made

    def _worker(
        self,
        name: str,
        run: str,
        plans: tuple[Plan, ...],
        number: int,
        arrays: dict[str, Bytes],
        keys: Keys | Plain,
        options: dict[str, Any],
    ) -> PrefillWorker:
        label = f"{name}{number}"
        transport = Nixl(label) if self.nixl else InMemory(self.hub, label)
        pool = views(plans[0].prefill, number, arrays)
        return PrefillWorker(plans, number, pool, transport, identity=Identity(name, run), keys=keys, **options)


@contextmanager
def engines(*ways: str, nixl: bool = False) -> Iterator[Engines]:
    """Engines, closed at the end."""
    made = Engines(ways, nixl)
    try:
        yield made
    finally:
        for one in made.made:
            one.close()


def request(shapes: tuple[Shape, Shape], name: str, seed: int) -> Request:
    """A request from an engine of the first shape to one of the second, in other blocks than those of other seeds."""
    found = []
    for shape in shapes:
        need = -(-TOKENS // (shape.kernel * shape.ratio))
        ids = (np.random.default_rng(seed).permutation(12)[:need] + 12 * (seed % 3)).tolist()
        found.append(tables(shape, MODEL, ids, 0, 5 + seed, TOKENS))
    return Request(name, (0, TOKENS), found[0], found[1])


def hold(source: Both, asked: Request, seed: int) -> None:
    """Fill the blocks of a request with content of that seed, and hold it."""
    for number, arrays in enumerate(source.arrays):
        fill(source.shape, MODEL, number, arrays, truth(MODEL, TOKENS, seed), asked.prefill)
    for worker in source.prefill:
        worker.hold(asked.id, asked.prefill)


def check(target: Both, asked: Request, seed: int) -> None:
    """The blocks of a request hold the content of that seed."""
    for number, arrays in enumerate(target.arrays):
        wanted = expect(target.shape, MODEL, number, truth(MODEL, TOKENS, seed), asked.decode, asked.tokens)
        for plane, want in wanted.items():
            written = want != 0
            np.testing.assert_array_equal(arrays[plane][written], want[written])


def submit(target: Both, asked: Request, peer: str, timeout: float = 20) -> list[Transfer]:
    return [worker.submit(asked, timeout, peer) for worker in target.decode]


def move(source: Both, target: Both, name: str, seed: int) -> None:
    """One request from one engine to the other, with all its bytes compared."""
    asked = request((source.shape, target.shape), name, seed)
    hold(source, asked, seed)
    for transfer in submit(target, asked, source.name):
        assert transfer.wait().state == "done", transfer.error
    check(target, asked, seed)
