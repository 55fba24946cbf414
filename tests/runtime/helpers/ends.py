"""Both ends of every link in this process, with real bytes, and requests of the compiler's kind as the runtime takes
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.end_to_end.memory import EMPTY, PADDED, Memory, allocate, ids_of
from tests.runtime.helpers.agents import progressed
from tests.runtime.helpers.memories import declared
from tests.slowness import Patience

from kvplan.compiler.bound import BoundSide
from kvplan.plan.request import Request
from kvplan.plan.types import Plan, Runs
from kvplan.runtime import InMemory, views
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.transfer import prepare
from kvplan.runtime.transfer.demand import Meter
from kvplan.runtime.transfer.executor import ExecutorContext, MoveEnds, TransferExecutor, predict
from kvplan.runtime.transfer.gather import GatheredSpans, IndexScratch, gather
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transfer.posts import post_load
from kvplan.runtime.transfer.prepared import PreparedLink, PreparedLinks
from kvplan.runtime.transport.base import TransferHandle
from kvplan.runtime.transport.inmemory import Hub

SECONDS = 20


def asked(request: Request, name: str = "r") -> Request:
    """The request under another name."""
    return replace(request, id=name)


@dataclass(slots=True)
class Ends:
    """All workers of both sides, each with its memory and an agent: `agents` and `pools` are (prefill, decode)."""

    plan: Plan
    prefill: list[Memory]
    decode: list[Memory]
    agents: tuple[list[Any], list[Any]]
    pools: tuple[list[Pool], list[Pool]]
    scratch: IndexScratch = field(default_factory=IndexScratch)
    counters: Counters = field(default_factory=Counters)

    def link(
        self,
        theirs: int,
        ours: int,
        push: bool,
        layers: frozenset[int] | None = None,
        stage: Stage | None = None,
        peer_stage: PeerStage | None = None,
    ) -> PreparedLink:
        here, there = self.agents[0][theirs], self.agents[1][ours]
        here, there = (here, there) if push else (there, here)
        peer = here.add_peer(there.metadata())
        geometries = self.pools[0][theirs].geometry, self.pools[1][ours].geometry
        ends = PreparedLink(theirs, ours, peer, push, *geometries, (), stage, peer_stage, layers)
        return prepare.link(self.plan, ends, here)

    def stage(self, number: int, push: bool, size: int) -> Stage:
        """A stage of `size` bytes for a worker that writes, or reads."""
        side = 0 if push else 1
        return Stage(size, self.agents[side][number], self.pools[side][number].geometry, lambda: None)

    def execute(
        self,
        link: PreparedLink,
        runs: Mapping[str, Runs],
        most: int,
        also: Callable[[], None] = lambda: None,
        *,
        foreseen: bool = False,
    ) -> TransferExecutor:
        """Move by an executor, in slices of at most `most` bytes, as many requests as were predicted.

        It calls `also` in every round. With `foreseen` the executor foresees the move.
        """
        here = self.agents[0][link.prefill_worker] if link.push else self.agents[1][link.decode_worker]
        context, failures = (
            ExecutorContext(here, Limits(slice_bytes=most), self.counters, link.stage),
            list[Exception](),
        )
        over = MoveEnds("r", link.peer, link.peer, PreparedLinks(lambda _: link), Meter())
        executor = TransferExecutor(over, context, failures.append)
        if foreseen:
            executor.foresee(link, runs)
        executor.add(link, runs)
        executor.complete, patience = True, Patience(SECONDS)
        while not executor.done:
            context.begin()
            executor.step()
            also()
            assert not failures, failures
            assert patience.lasts(), "the transfer does not end"
        assert executor.meter.descriptors == executor.meter.posted == predict(link, runs, context)
        return executor

    def move(self, link: PreparedLink, runs: Mapping[str, Runs]) -> GatheredSpans:
        """Post what a link moves, and wait for it: the transport counts as many requests as were predicted."""
        here = self.agents[0][link.prefill_worker] if link.push else self.agents[1][link.decode_worker]
        load = gather(link, runs, self.scratch)
        handles = [here.post(link.op, link.peer, b.local, at, b.remote, there) for b, at, there in load.banks]
        posted = list[TransferHandle | None]()
        post_load(here, link, replace(load, banks=()), posted)
        handles += [handle for handle in posted if handle is not None]
        progressed(lambda: all(handle.poll() for handle in handles), *self.every())
        assert sum(handle.descriptors() for handle in handles) == load.descriptors
        for handle in handles:
            handle.release()
        return load

    def every(self) -> list[Any]:
        return [*self.agents[0], *self.agents[1]]

    def close(self) -> None:
        for agent in self.every():
            agent.close()


def ends(
    plan: Plan,
    sides: tuple[BoundSide, BoundSide],
    request: Request,
    transport: Callable[[str], Any] | None = None,
) -> Ends:
    """Over memory, unless a transport is given, with room for the ids of the request."""
    hub = Hub()
    make = transport or (lambda name: InMemory(hub, name, pretends=True))
    found: list[tuple[list[Memory], list[Any], list[Pool]]] = []
    for side, of_plan, word, fill in (
        (sides[0], plan.prefill, "prefill", PADDED),
        (sides[1], plan.decode, "decode", EMPTY),
    ):
        ids = ids_of(getattr(request, word))
        memories = [allocate(side, n, ids, fill) for n in range(len(side.workers))]
        pools = [views(of_plan, n, declared(of_plan, n, memory.planes)) for n, memory in enumerate(memories)]
        agents = [make(f"{word}{n}") for n in range(len(memories))]
        for agent, pool in zip(agents, pools, strict=True):
            for mem_type, regions in pool.geometry.by_type():
                agent.register(regions, mem_type)
        found.append((memories, agents, pools))
    theirs, ours = found
    return Ends(plan, theirs[0], ours[0], (theirs[1], ours[1]), (theirs[2], ours[2]))
