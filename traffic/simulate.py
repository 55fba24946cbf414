"""Simulate all requests of some traffic through a fleet with one pair of sides, by simpy.

Nothing is random here, so the same input gives the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from kvplan.dsl.schema.fleet import DecodeFigures, PrefillFigures
from kvplan.traffic.arrivals import HASHED, Arrival
from kvplan.traffic.block_pool import BlockPool
from kvplan.traffic.engines import PostingWorker, SharedMachine, SimulatedEngine, Steps, rails_of
from kvplan.traffic.fair_share import FairShare, SharedPool
from kvplan.traffic.request import RequestLife
from kvplan.traffic.router import router
from kvplan.traffic.runs import EngineUse, RequestTimes, SimulatedPair, SimulatedRun


def simulated(pair: SimulatedPair, arrivals: Sequence[Arrival]) -> SimulatedRun:
    """Simulate `arrivals`, which are in order of time. Needs simpy."""
    return SimulatedFleet(pair).run(arrivals)


class SimulatedFleet:
    """Engines of one pair of sides, and all requests through them, once."""

    def __init__(self, pair: SimulatedPair) -> None:
        from simpy import Environment

        env = Environment()
        cores = SharedPool(float(pair.cores)) if pair.cores else None
        self._pair, self._env, self._numbers = pair, env, count()
        self._machine = SharedMachine(env, pair.profile, pair.limits, FairShare(env), FairShare(env), cores)
        pull, links = pair.mode == "pull", pair.loads.of(HASHED)
        posting = sorted({link.decode if pull else link.prefill for link in links})
        reads, writes = (posting, []) if pull else ([], posting)
        self.prefills = [
            self._engine(f"prefill-{number}", pair.prefill, pair.prefill_block, 1, writes)
            for number in range(pair.prefill.engines)
        ]
        self.decodes = [
            self._engine(f"decode-{number}", pair.decode, pair.decode_block, pair.decode.sequences, reads)
            for number in range(pair.decode.engines)
        ]
        self._elect_prefill, self._elect_decode = router(pair.router), router(pair.router)

    def _engine(
        self, name: str, figures: PrefillFigures | DecodeFigures, block: int, turns: int, posting: Iterable[int]
    ) -> SimulatedEngine:
        from simpy import Resource

        pool = BlockPool(self._env, figures.cache_tokens // block, block)
        # A reader copies bytes after their arrival, a writer before it posts them.
        workers = {worker: PostingWorker(self._machine, copies_last=self._pair.mode == "pull") for worker in posting}
        return SimulatedEngine(name, pool, Resource(self._env, turns), *rails_of(figures.rails), workers)

    def run(self, arrivals: Sequence[Arrival]) -> SimulatedRun:
        ends: dict[int, RequestTimes] = {}
        self._env.process(self._arrive(arrivals, ends))
        self._env.run()
        requests = tuple(ends[number] for number in range(len(arrivals)))
        cores = self._machine.cores or SharedPool(0.0)
        return SimulatedRun(requests, _uses(self.prefills), _uses(self.decodes), cores.moved, cores.rate)

    def _arrive(self, arrivals: Sequence[Arrival], ends: dict[int, RequestTimes]) -> Steps:
        for number, arrival in enumerate(arrivals):
            yield self._env.timeout(max(0.0, arrival.at - self._env.now))
            prefill, decode = self._elect_prefill(self.prefills), self._elect_decode(self.decodes)
            life = RequestLife(self._pair, self._machine, str(number), arrival, prefill, decode)
            self._env.process(_record(life, number, ends))


def _record(life: RequestLife, number: int, ends: dict[int, RequestTimes]) -> Steps:
    ends[number] = yield from life.run()


def _uses(engines: Iterable[SimulatedEngine]) -> tuple[EngineUse, ...]:
    return tuple(
        EngineUse(
            computed=engine.computed,
            posting=max((worker.busy for worker in engine.workers.values()), default=0.0),
            bytes=engine.rails.moved if engine.rails else 0.0,
            rails=engine.rails.rate if engine.rails else 0.0,
            most=engine.pool.most,
            blocks=engine.pool.capacity,
        )
        for engine in engines
    )
