"""Four engines in this process, a router that sends nothing to who drains, and a rolling upgrade of two releases."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.worlds import expect, fill, memory, tables, truth

from kvplan.fleet.pairs import fleet_pairs
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState
from kvplan.plan.files.index import IndexEntry
from kvplan.plan.request import Tables
from kvplan.plan.types import Plan
from kvplan.runtime import DecodeWorker, Identity, InMemory, Plain, PrefillWorker, Request, Transfer, errors, views
from kvplan.runtime.transport.inmemory import Hub

MODEL = Model(state=False)
TOKENS = (0, 12)
SLOTS, BLOCKS = 4, 8
DRAIN_S, MOVE_S, MEET_S = 60.0, 60.0, 20.0


@dataclass(frozen=True)
class Release:
    """A release of engines: its plan, and the shapes of both sides."""

    name: str
    plan: Plan
    shapes: tuple[Shape, Shape]


@dataclass
class House:
    """The environment of all engines: the memory hub, the plans of both releases, their index, announced engines."""

    plans: tuple[Plan, ...]
    index: tuple[IndexEntry, ...]
    mode: str = "pull"
    hub: Hub = field(default_factory=Hub)
    records: dict[str, EngineRecord] = field(default_factory=dict)
    runs: int = 0

    def announce(self, record: EngineRecord) -> None:
        self.records[record.name] = record

    def ready(self) -> dict[str, EngineRecord]:
        return {name: one for name, one in self.records.items() if one.state is EngineState.READY}


class RunningEngine:
    """One engine of one worker, which announces itself."""

    def __init__(self, house: House, name: str, role: EngineRole, release: Release) -> None:
        house.runs += 1
        self.house, self.role, self.release = house, role, release
        self.prefills = role is EngineRole.PREFILL
        self.shape = release.shapes[not self.prefills]
        side = release.plan.prefill if self.prefills else release.plan.decode
        self.memory = memory(self.shape, MODEL, 0)
        kind = PrefillWorker if self.prefills else DecodeWorker
        run = f"{name}.{house.runs}"
        self.worker: PrefillWorker | DecodeWorker = kind(
            house.plans,
            0,
            views(side, 0, self.memory),
            InMemory(house.hub, run),
            identity=Identity(name, run),
            keys=Plain(),
        )
        addresses: tuple[str, ...] = ()
        if isinstance(self.worker, PrefillWorker):
            addresses = (self.worker.address,)
            self.worker.announce(addresses)
        self.record = EngineRecord(
            name=name, run=run, role=role, model=release.plan.model, model_digest=release.plan.model_digest,
            side=side.digest, side_key=side.key, addresses=addresses,
        )  # fmt: skip
        house.announce(self.record)

    @property
    def source(self) -> PrefillWorker:
        assert isinstance(self.worker, PrefillWorker)
        return self.worker

    @property
    def target(self) -> DecodeWorker:
        assert isinstance(self.worker, DecodeWorker)
        return self.worker

    def blocks(self, slot: int) -> Tables:
        """The blocks of a request in one of SLOTS places, which no other has."""
        count = -(-TOKENS[1] // self.shape.kernel)
        return tables(self.shape, MODEL, [2 + slot * BLOCKS + n for n in range(count)], 0, 0, TOKENS[1])

    def leave(self) -> Iterator[None]:
        """Drain before it ends, as docs/operations.md has it: first nobody sends, then nothing new is taken."""
        self.house.announce(replace(self.record, state=EngineState.DRAINING))
        yield
        self.worker.drain(DRAIN_S)
        while not self.worker.drained():
            yield
        self.close()

    def close(self) -> None:
        del self.house.records[self.record.name]
        self.worker.close()


@dataclass
class RoutedRequest:
    """A request on its way: who prefilled it, who loads it, and how often it began again."""

    number: int
    slot: int
    prefill: RunningEngine | None = None
    decode: RunningEngine | None = None
    transfer: Transfer | None = None
    done: bool = False
    again: int = 0

    @property
    def name(self) -> str:
        return f"{self.number}.{self.again}"


class PlanRouter:
    """Sends each request to two engines that are ready and have a plan for each other, as it heard last."""

    def __init__(self, house: House, engines: dict[str, RunningEngine], chance: random.Random) -> None:
        self.house, self.engines, self.chance = house, engines, chance
        self.heard: dict[str, EngineRecord] = {}
        self.refused = 0

    def advance(self, request: RoutedRequest) -> None:
        """One step of a request, where there is any that can be done now."""
        if request.prefill is None:
            self._prefill(request)
        elif request.transfer is None:
            self._decode(request)
        elif request.transfer.poll():
            self._end(request)

    def _prefill(self, request: RoutedRequest) -> None:
        pairs = [pair for pair in fleet_pairs(self.heard, self.house.index) if pair.plan]
        if not pairs:
            return
        engine = self.engines[self.chance.choice(pairs).prefill.name]
        content = truth(MODEL, TOKENS[1], request.number)
        fill(engine.shape, MODEL, 0, engine.memory, content, engine.blocks(request.slot))
        try:
            engine.source.hold(request.name, engine.blocks(request.slot))
        except (errors.DrainingError, errors.HandleError):  # it drains, or has ended: the router does not know yet
            self.refused += 1
            return
        request.prefill = engine

    def _decode(self, request: RoutedRequest) -> None:
        """Choose a ready engine with a plan for the holder's side, which may drain; start again if there is none."""
        prefill = request.prefill
        assert prefill is not None
        known = {**self.heard, prefill.record.name: prefill.record}
        pairs = [pair for pair in fleet_pairs(known, self.house.index) if pair.plan and pair.prefill is prefill.record]
        if not pairs:
            prefill.source.withdraw(request.name)
            self._anew(request)
            return
        engine = self.engines[self.chance.choice(pairs).decode.name]
        try:
            peer = engine.target.connect(prefill.source.address, MEET_S, mode=self.house.mode)
        except (errors.DrainingError, errors.HandleError, errors.UnlikeError, errors.DigestError):
            self.refused += 1
            return
        asked = Request(request.name, TOKENS, prefill.blocks(request.slot), engine.blocks(request.slot))
        request.decode, request.transfer = engine, engine.target.submit(asked, MOVE_S, peer.name)

    def _end(self, request: RoutedRequest) -> None:
        assert request.transfer is not None
        assert request.decode is not None
        if isinstance(request.transfer.error, errors.DrainingError):
            self.refused += 1
            request.transfer = request.decode = None
            return
        assert request.transfer.error is None, request.transfer.error
        content = truth(MODEL, TOKENS[1], request.number)
        engine, ids = request.decode, request.decode.blocks(request.slot)
        wanted = expect(engine.shape, MODEL, 0, content, ids, TOKENS)
        rows = np.asarray(ids["kv"].ids)  # type: ignore[union-attr]
        for plane, array in engine.memory.items():
            np.testing.assert_array_equal(array[rows], wanted[plane][rows])
        request.done = True

    def _anew(self, request: RoutedRequest) -> None:
        request.prefill, request.again = None, request.again + 1


def upgraded(
    house: House, old: Release, new: Release, order: Sequence[str], after: int, lag: int
) -> tuple[list[RoutedRequest], PlanRouter]:
    """Roll four engines in an order while requests come, and `after` more; the router hears `lag` steps late.

    Returns what became of the requests.
    """
    roles = {"p": EngineRole.PREFILL, "d": EngineRole.DECODE}
    engines = {name: RunningEngine(house, name, roles[name[0]], old) for name in ("p0", "p1", "d0", "d1")}
    router = PlanRouter(house, engines, random.Random(str(order)))

    def roll() -> Iterator[None]:
        for name in order:
            yield from engines[name].leave()
            engines[name] = RunningEngine(house, name, roles[name[0]], new)
            yield

    rolling, ended, seen = roll(), False, [house.ready()] * (lag + 1)
    made: list[RoutedRequest] = []
    try:
        for _ in range(100_000):
            seen = [*seen[1:], house.ready()]
            router.heard = seen[0]
            under_way = [request for request in made if not request.done]
            if ended and not after and not under_way:
                return made, router
            free = sorted(set(range(SLOTS)) - {request.slot for request in under_way})
            if free and (after or not ended):
                made.append(RoutedRequest(len(made), free[0]))
                after -= ended
            for request in under_way:
                router.advance(request)
            if not ended and len(made) > SLOTS:
                ended = next(rolling, rolling) is rolling
            for engine in engines.values():
                if isinstance(engine.worker, DecodeWorker) and engine.record.name in house.records:
                    engine.worker.run_once()
                elif isinstance(engine.worker, PrefillWorker) and engine.record.name in house.records:
                    engine.worker.released()
        raise AssertionError(f"{sum(not request.done for request in made)} requests never end")
    finally:
        for engine in engines.values():
            if engine.record.name in house.records:
                engine.close()
