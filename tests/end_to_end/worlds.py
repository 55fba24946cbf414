"""All workers of a pair of sides in this process, connected, with real memory behind every plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.end_to_end.memory import EMPTY, PADDED, Memory, allocate, ids_of, refill, regions_of, stamp, wrong
from tests.runtime.helpers.memories import declared

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import Atlas
from kvplan.plan.request import Request
from kvplan.runtime import DecodeWorker, Identity, InMemory, Nixl, Plain, Plan, PrefillWorker, views
from kvplan.runtime.transport.inmemory import Hub

Transports = Callable[[str], InMemory | Nixl]
SECONDS, LEASE = 20, 600
# Bytes: memory of its own for each of many workers.
STAGE = 1 << 20
PREFILL, DECODE = Identity("prefill", "p"), Identity("decode", "d")


@dataclass(frozen=True, slots=True)
class World:
    """Workers with their memory, by number."""

    plan: Plan
    sides: tuple[BoundSide, BoundSide]
    regions: Atlas
    prefill: tuple[tuple[PrefillWorker, Memory], ...]
    decode: tuple[tuple[DecodeWorker, Memory], ...]
    mode: str = "pull"

    def finished(self) -> set[tuple[str, ...]]:
        """Which requests the prefill workers released as finished; one entry if all agree."""
        return {ended(worker) for worker, _ in self.prefill}


def ended(worker: PrefillWorker) -> tuple[str, ...]:
    """The requests that a prefill worker has released since the last call, each of them finished."""
    released = worker.released()
    assert {one.why for one in released} <= {"finished"}
    return tuple(sorted(one.request for one in released))


def holds(memory: Memory, plan: Plan) -> bool:
    """Whether a worker stores anything that the plan moves, padding aside."""
    return any(f.offset.size for p in memory.stored.values() if p.cache not in plan.skipped for f in p.fields)


@contextmanager
def world(
    plan: Plan,
    sides: tuple[BoundSide, BoundSide],
    requests: Sequence[Request],
    transport: Transports | None = None,
    mode: str = "pull",
    **options: Any,
) -> Iterator[World]:
    """Workers that hold what the first of `requests` has in its prefill tables, over memory unless told otherwise.

    Options go to the workers of both sides.
    """
    hub = Hub()
    make = transport or (lambda name: InMemory(hub, name, pretends=True))
    p_ids, d_ids = (max(ids_of(getattr(r, word)) for r in requests) for word in ("prefill", "decode"))
    regions = regions_of(sides, requests)
    prefill = tuple(source(plan, sides[0], n, p_ids, make, **options) for n in range(len(sides[0].workers)))
    decode = tuple(target(plan, sides[1], n, d_ids, make, **options) for n in range(len(sides[1].workers)))
    try:
        addresses = [worker.address for worker, _ in prefill]
        for worker, _ in prefill:
            worker.announce(addresses)
        for reader, _ in decode:
            reader.connect(addresses[0], SECONDS, mode=mode)
        yield World(plan, sides, regions, prefill, decode, mode)
    finally:
        for reader, _ in decode:
            reader.close()
        for worker, _ in prefill:
            worker.close()


def source(
    plan: Plan, side: BoundSide, number: int, ids: int, make: Transports, **options: Any
) -> tuple[PrefillWorker, Memory]:
    """A prefill worker whose memory is all padding so far."""
    memory = allocate(side, number, ids, PADDED)
    pool = views(plan.prefill, number, declared(plan.prefill, number, memory.planes))
    who: dict[str, Any] = {"identity": PREFILL, "keys": Plain(), **options}
    return PrefillWorker(plan, number, pool, make(f"p{number}"), lease=LEASE, **who), memory


def target(
    plan: Plan, side: BoundSide, number: int, ids: int, make: Transports, **options: Any
) -> tuple[DecodeWorker, Memory]:
    """A decode worker whose memory is empty."""
    memory = allocate(side, number, ids, EMPTY)
    pool = views(plan.decode, number, declared(plan.decode, number, memory.planes))
    who: dict[str, Any] = {"identity": DECODE, "keys": Plain(), **options}
    return DecodeWorker(plan, number, pool, make(f"d{number}"), **who), memory


def move(made: World, request: Request, name: str) -> None:
    """One request from memory that holds it to memory that is empty, checked byte by byte on every decode worker."""
    for worker, memory in made.prefill:
        refill(memory, PADDED)
        stamp(memory, made.regions, request.prefill)
        worker.hold(name, runtime_request(request, name).prefill)
    for number, (reader, memory) in enumerate(made.decode):
        refill(memory, EMPTY)
        asked = runtime_request(request, name)
        predicted = sum(reader.predict(asked).values())
        done = reader.submit(asked, SECONDS).wait()
        assert (done.state, done.descriptors) == ("done", predicted if made.mode == "pull" else 0)
        found = wrong(memory, made.regions, request, made.plan.skipped)
        assert not found, f"decode worker {number}, tokens {request.tokens} {dict(request.lengths)}: {found}"


def runtime_request(request: Request, name: str) -> Request:
    """The request under a name of its own."""
    return replace(request, id=name)
