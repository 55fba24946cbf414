"""What one worker of the demo does, in a process (or thread) of its own: `serve` holds a cache, `fetch` needs it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvplan.cli.crew import Line
from kvplan.cli.demo_memory import allocate, deal

if TYPE_CHECKING:
    from kvplan.compiler.bound import BoundSide
    from kvplan.runtime import PrefillWorker, Puller
    from kvplan.runtime.inmemory import Hub
    from kvplan.runtime.plan import Blocks, Plan, Side
    from kvplan.runtime.request import Request, Tables
    from kvplan.runtime.transport import Transport

REQUESTS = ("first", "again")
PREFILL_SEED, DECODE_SEED = 11, 12
PAUSE = 0.0002


@dataclass(frozen=True, slots=True)
class Job:
    """One worker's part: the plan file, its side, its number there, the tokens to move, seconds before giving up."""

    plan: str
    side: BoundSide
    number: int
    tokens: tuple[int, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Moved:
    """What a decode worker saw of its two transfers: sources, posted requests, the plan's prediction, seconds.

    `connect` seconds go by before the first transfer, whose own seconds include the transport's wiring up. `began`
    is when the second one was submitted, by the machine's monotonic clock.
    """

    worker: int
    sources: int
    requests: int
    predicted: int
    connect: float
    first: float
    again: float
    began: float


def serve(line: Line, job: Job, hub: Hub | None) -> None:
    """A prefill worker: fill, register, answer decode workers until the parent says finish; tell which are done."""
    from kvplan.cli.demo_content import stamp
    from kvplan.runtime import PrefillWorker, load_plan, views

    plan = load_plan(job.plan)
    tables = deal(plan.prefill.groups, job.tokens, PREFILL_SEED)
    memory = allocate(plan.prefill.workers[job.number], plan.prefill.groups, tables, seed=job.number)
    stamp(job.side, job.number, tables, job.tokens, memory.planes)
    pool = views(plan.prefill, job.number, dict(memory.planes.items()))
    worker = PrefillWorker(plan, job.number, pool, transport("prefill", hub))
    try:
        line.say(worker.address)
        worker.announce(line.listen(job.seconds), generation="demo")
        line.say(unfinished(line, plan, worker, job.seconds))
        line.listen(job.seconds)
    finally:
        worker.close()


def unfinished(line: Line, plan: Plan, worker: PrefillWorker, seconds: float) -> set[str]:
    """Poll until all requests are complete by the plan's contract, or until told to end; those that are not."""
    from kvplan.runtime.server import expected

    missing = set(REQUESTS) if expected(plan, worker.worker) else set()
    end = time.monotonic() + seconds
    while missing and time.monotonic() < end and not line.waiting():
        worker.poll()
        missing -= set(worker.finished())
        time.sleep(PAUSE)
    return missing


def fetch(line: Line, job: Job, hub: Hub | None) -> None:
    """A decode worker: connect, fetch the request twice, and compare every byte that it holds after the first time."""
    from kvplan.cli.demo_check import check
    from kvplan.runtime import Puller, load_plan, views

    plan = load_plan(job.plan)
    tables = deal(plan.decode.groups, job.tokens, DECODE_SEED)
    memory = allocate(plan.decode.workers[job.number], plan.decode.groups, tables, seed=1000 + job.number)
    before = memory.copy()
    pool = views(plan.decode, job.number, dict(memory.planes.items()))
    puller = Puller(plan, job.number, pool, transport("decode", hub))
    try:
        line.say("ready")
        addresses = line.listen(job.seconds)
        connect, _ = timed(lambda: puller.connect(addresses[0], job.seconds))
        first, _ = timed(lambda: puller.submit(request(plan, job.tokens, "first"), job.seconds).wait())
        counted = check(job.side, job.number, tables, job.tokens, memory, before)
        line.say(counted)
        idle(line, puller, job.seconds)
        wanted, began = request(plan, job.tokens, "again"), time.monotonic()
        again, moved = timed(lambda: puller.submit(wanted, job.seconds).wait())
        posted = moved.requests if moved.posted is None else moved.posted
        line.say(Moved(job.number, len(moved.parts), posted, moved.requests, connect, first, again, began))
    finally:
        puller.close()


def idle(line: Line, puller: Puller, seconds: float) -> None:
    """Wait for the parent's word, polling all the while: without it the last notification may never leave."""
    end = time.monotonic() + seconds
    while not line.waiting() and time.monotonic() < end:
        puller.poll()
        time.sleep(PAUSE)
    line.listen(0)


def transport(name: str, hub: Hub | None) -> Transport:
    """An agent of `hub`, or one of NIXL that counts the requests it posts."""
    from kvplan.runtime import InMemory, Nixl

    return InMemory(hub, name) if hub is not None else Nixl(name, telemetry=True)


def request(plan: Plan, tokens: tuple[int, int], name: str) -> Request:
    """The request that every worker of the demo agrees on, since the block ids follow from seeds."""
    from kvplan.runtime import Request

    prefill = _tables(plan.prefill, deal(plan.prefill.groups, tokens, PREFILL_SEED), tokens[1])
    return Request(
        name, tokens, prefill, _tables(plan.decode, deal(plan.decode.groups, tokens, DECODE_SEED), tokens[1])
    )


def _tables(side: Side, dealt: Mapping[str, Blocks], end: int) -> Tables:
    from kvplan.runtime import Slot

    states = {group.name for group in side.groups if group.store == "state"}
    return {name: Slot(int(t.ids[0]), end) if name in states else t for name, t in dealt.items()}


def timed(action: Any) -> tuple[float, Any]:
    """Seconds an action takes, and what it returns."""
    start = time.perf_counter()
    value = action()
    return time.perf_counter() - start, value
