"""What one worker of the demo does, in a process (or thread) of its own: `serve` holds a cache, `fetch` needs it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvplan.cli.crew import Line
from kvplan.cli.demo_memory import Memory, allocate
from kvplan.cli.demo_rows import Share

if TYPE_CHECKING:
    from kvplan.runtime import PrefillWorker, Puller
    from kvplan.runtime.inmemory import Hub
    from kvplan.runtime.plan import Plan, Side
    from kvplan.runtime.request import Request
    from kvplan.runtime.transport import Transport

REQUESTS = ("first", "again")
PAUSE = 0.0002


@dataclass(frozen=True, slots=True)
class Job:
    """One worker's part: the plan file, its share, the request that all agree on, seconds before giving up."""

    plan: str
    share: Share
    request: Request
    seconds: float

    def asking(self, name: str) -> Request:
        """The request under a name of its own."""
        return replace(self.request, id=name)


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
    from kvplan.cli.demo_rows import held
    from kvplan.runtime import PrefillWorker, load_plan, views

    plan = load_plan(job.plan)
    memory = noise(plan.prefill, job.share, seed=job.share.number)
    stamp(job.share, held, memory.planes)
    pool = views(plan.prefill, job.share.number, dict(memory.planes.items()))
    worker = PrefillWorker(plan, job.share.number, pool, transport("prefill", hub))
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
    from kvplan.runtime import Puller, load_plan, views

    plan, number = load_plan(job.plan), job.share.number
    memory = noise(plan.decode, job.share, seed=1000 + number)
    pool = views(plan.decode, number, dict(memory.planes.items()))
    puller = Puller(plan, number, pool, transport("decode", hub))
    try:
        twice(line, job, puller, memory)
    finally:
        puller.close()


def twice(line: Line, job: Job, puller: Puller, memory: Memory) -> None:
    """Say that this worker is ready, what it checked after the first transfer, and how both of them went."""
    from kvplan.cli.demo_check import check

    before = memory.copy()
    line.say("ready")
    addresses = line.listen(job.seconds)
    connect, _ = timed(lambda: puller.connect(addresses[0], job.seconds))
    first, _ = timed(lambda: puller.submit(job.asking("first"), job.seconds).wait())
    line.say(check(job.share, memory, before))
    idle(line, puller, job.seconds)
    wanted, began = job.asking("again"), time.monotonic()
    again, moved = timed(lambda: puller.submit(wanted, job.seconds).wait())
    posted = moved.requests if moved.posted is None else moved.posted
    line.say(Moved(job.share.number, len(moved.parts), posted, moved.requests, connect, first, again, began))


def noise(side: Side, share: Share, seed: int) -> Memory:
    """Memory for one worker's planes, with room for the blocks of its share."""
    return allocate(side.workers[share.number], side.groups, share.tables, seed)


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


def timed(action: Any) -> tuple[float, Any]:
    """Seconds an action takes, and what it returns."""
    start = time.perf_counter()
    value = action()
    return time.perf_counter() - start, value
