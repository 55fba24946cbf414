"""One worker of the demo, in a separate process or thread: `serve` holds a cache, `fetch` needs it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvplan.demo.memory import DemoMemory, allocate
from kvplan.demo.processes import WorkerPipe
from kvplan.demo.requests import RequestShare

if TYPE_CHECKING:
    from kvplan.plan.request import Request
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker, Identity, Keys, PrefillWorker
    from kvplan.runtime.transport.base import Transport
    from kvplan.runtime.transport.inmemory import Hub

REQUESTS = ("first", "again")
PAUSE, SHORTEST = 0.002, 1.0


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One worker's part: the plan file, its share of the request, the seconds before it gives up.

    `identity` and `keys` are those of its engine, the same for all its workers.
    """

    plan: str
    share: RequestShare
    seconds: float
    identity: Identity
    keys: Keys

    def asking(self, name: str) -> Request:
        """Return the request with another name."""
        return replace(self.share.request, id=name)


@dataclass(frozen=True, slots=True)
class FetchReport:
    """A decode worker's results of its two transfers: sources, posted descriptors, the plan's prediction, seconds.

    `connect` is the seconds before the first transfer, whose own seconds include the transport's setup. The second one
    was submitted at `began`, by the machine's monotonic clock. `content` is the bytes that it fetched, `compared` the
    bytes of its memory that were checked.
    """

    worker: int
    sources: int
    descriptors: int
    predicted: int
    connect: float
    first: float
    again: float
    began: float
    content: int
    compared: int


def serve(line: WorkerPipe, job: DemoJob, hub: Hub | None) -> None:
    """Run a prefill worker: fill, register, hold the requests; report the requests that are not done at the end."""
    from kvplan.demo.content import held, stamp
    from kvplan.runtime import PrefillWorker, load_plan, views

    plan = load_plan(job.plan)
    memory = allocate(plan.prefill, job.share.number, job.share.tables, seed=job.share.number)
    stamp(job.share, held, memory.planes)
    pool = views(plan.prefill, job.share.number, dict(memory.planes.items()))
    mine, lease = transport("prefill", hub), max(SHORTEST, job.seconds)
    worker = PrefillWorker(plan, job.share.number, pool, mine, identity=job.identity, keys=job.keys, lease=lease)
    try:
        asked = hold(plan, worker, job)
        line.say(worker.address)
        worker.announce(line.listen(job.seconds))
        line.say(unfinished(line, worker, asked, job.seconds))
        line.listen(job.seconds)
    finally:
        worker.close()


def hold(plan: Plan, worker: PrefillWorker, job: DemoJob) -> set[str]:
    """Hold the requests, unless the plan has no decode worker that notifies this worker; return those held."""
    from kvplan.runtime.prefill.peers import expected

    held = set(REQUESTS) if expected(plan, worker.worker) else set()
    for request in held:
        worker.hold(request, job.share.tables)
    return held


def unfinished(line: WorkerPipe, worker: PrefillWorker, missing: set[str], seconds: float) -> set[str]:
    """Wait until all requests are complete by the plan's contract, or the parent ends; return incomplete ones."""
    end = time.monotonic() + seconds
    while missing and time.monotonic() < end and not line.waiting():
        time.sleep(PAUSE)
        missing = missing - {one.request for one in worker.released() if one.why == "finished"}
    return missing


def fetch(line: WorkerPipe, job: DemoJob, hub: Hub | None) -> None:
    """Run a decode worker: connect, fetch the request twice, and compare every byte of its memory after the first."""
    from kvplan.runtime import DecodeWorker, load_plan, views

    plan, number = load_plan(job.plan), job.share.number
    memory, before = (allocate(plan.decode, number, job.share.tables, seed=1000 + number) for _ in range(2))
    pool = views(plan.decode, number, dict(memory.planes.items()))
    worker = DecodeWorker(plan, number, pool, transport("decode", hub), identity=job.identity, keys=job.keys)
    try:
        twice(line, job, worker, memory, before)
    finally:
        worker.close()


def twice(line: WorkerPipe, job: DemoJob, worker: DecodeWorker, memory: DemoMemory, before: DemoMemory) -> None:
    """Report that this worker is ready, that it has checked the first transfer, and the results of both.

    `before` has the bytes that `memory` begins with.
    """
    from kvplan.demo.content import check

    line.say("ready")
    addresses = line.listen(job.seconds)
    connect, _ = timed(lambda: worker.connect(addresses[0], job.seconds))
    first, _ = timed(lambda: worker.submit(job.asking("first"), job.seconds).wait())
    checked = check(job.share, memory, before)
    line.say("checked")
    line.listen(job.seconds)
    wanted, began = job.asking("again"), time.monotonic()
    again, moved = timed(lambda: worker.submit(wanted, job.seconds).wait())
    posted = moved.descriptors if moved.posted is None else moved.posted
    sources = sum(part.peer.reads for part in moved.parts)
    line.say(FetchReport(job.share.number, sources, posted, moved.descriptors, connect, first, again, began, *checked))


def transport(name: str, hub: Hub | None) -> Transport:
    """Return an agent of `hub`, or one of NIXL that counts the descriptors it posts."""
    from kvplan.runtime import InMemory, Nixl

    return InMemory(hub, name) if hub is not None else Nixl(name, telemetry=True)


def timed(action: Any) -> tuple[float, Any]:
    """Return the seconds that an action takes, and its result."""
    start = time.perf_counter()
    value = action()
    return time.perf_counter() - start, value
