"""Faults, and heavy loads, that must harm no request. Each is a `Fault` as in tests/cluster.

Requests of these are good ones: each has to be done, unless its own engine's limits refuse it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.cluster.cluster import Cluster, Job
from tests.cluster.faults import Fault, kill_decode, kill_prefill
from tests.cluster.process import Word
from tests.paths import ROOT

LONG = 30.0
BURST, CONNECTIONS, AGAIN, OUTSTANDING, SPARE = 300, 100, 3, 1000, 100
# Polls after which an event completes: before long, and never.
LATE, NEVER = 200, 1 << 60
SETTLED = 20.0


def burst(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """Submit hundreds of requests at once; half of the time all are computed at about the same time."""
    which, late = random.randrange(len(cluster.decode)), random.choice((0, LATE))
    jobs = cluster.prepare_all(BURST, (0, 1), LONG, late, which)
    cluster.ask_all(jobs)
    cluster.good(jobs)
    yield 0.0


def again(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """Hold a name again and again, and ask for it with its earlier blocks, then with its current ones."""
    yield from _again(cluster, random, fed=False)


def fed_hybrids(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """The same in chunks, of a model with states; chunks may leave out where these are."""
    yield from _again(cluster, random, fed=True)


def half_open(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """Connections to a prefill worker's port that never say who they are."""
    prefix = random.choice(cluster.decode).host.prefix if cluster.prefill.host else ()  # type: ignore[union-attr]
    words = [random.choice(cluster.prefill.addresses), str(CONNECTIONS), str(random.choice((0.2, 1.0, 3.0)))]
    caller = subprocess.Popen([*prefix, sys.executable, "-m", "tests.cluster.half_open", *words], cwd=ROOT)
    try:
        while caller.poll() is None:
            yield 0.02
    finally:
        caller.kill()
        caller.wait(20)
    assert caller.returncode == 0, "no connections were made"


def restart(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """One side dies while as many requests as blocks, but for a few, wait for what is not computed yet: all end.

    If the decode engine that asked for them dies, the requests of the others are done.
    """
    count = cluster.prefill.setting.logical - SPARE
    jobs = cluster.prepare_all(count, (0, 1), LONG, NEVER, 0)
    cluster.ask_all(jobs)
    assert not cluster.until(lambda: any(one.outcomes for one in jobs), 1.0), "a request has ended by itself"
    assert len(jobs) == count
    kill = random.choice((kill_prefill, kill_decode))
    others = [cluster.begin((0, 1), LONG, LATE, decode=which) for which in range(1, len(cluster.decode))]
    yield from kill(cluster, jobs[0], random)
    cluster.good([one for one in others if one is not None and kill is kill_decode])
    for one in jobs:
        assert cluster.finish(one) != "done", f"{one.name} was never computed"


def _again(cluster: Cluster, random: Random, fed: bool) -> Iterator[float]:
    name, told, tokens = f"again {cluster.count}", list[Word](), (0, random.randrange(1, 120))
    more: dict[str, Any] = {"decode": random.randrange(len(cluster.decode)), "fed": fed, "again": True}
    for _ in range(AGAIN):
        job = cluster.prepare(tokens, LONG, name=name, **more)
        if job is None or job.theirs is None:
            break
        # If a chunk leaves out the slot, prefill can rely only on decode's words about a name's first hold.
        now, slots = job.theirs, not fed or random.random() < 0.7
        for before in told:
            _asked(cluster, job, before, slots)
            assert job.state != "done", f"{name} is done with the blocks of an earlier hold"
        _asked(cluster, job, now, slots)
        if slots or not told:
            cluster.good([job])
        _ended(cluster, job)
        told.append(now)
    yield 0.0


def _asked(cluster: Cluster, job: Job, told: Word, slots: bool) -> None:
    """Ask for a request by these blocks, until it has ended and nothing writes it any more."""
    engine = cluster.decode[job.decode]
    job.outcomes, job.freed = {}, set()
    cluster.ask(job, told)
    if job.fed and job.offered < job.tokens[1]:
        per = cluster.prefill.setting.shape.kernel * cluster.prefill.setting.shape.ratio
        cluster.feed(job, job.tokens[1] // per // 2 * per or job.tokens[1], slots=slots)
    if job.fed and job.offered < job.tokens[1]:
        cluster.feed(job, job.tokens[1], slots=slots)
    cluster.finish(job)
    assert cluster.until(lambda: len(job.freed) == len(engine.workers), SETTLED), f"{job.name} stays in quarantine"
    cluster.retries = [one for one in cluster.retries if one is not job]


def _ended(cluster: Cluster, job: Job) -> None:
    """Give a request up on either side, as far as it is not over there, and see its name become free."""
    if job.state != "done":
        cluster.prefill.every("withdraw", request=job.name)
        cluster.leave(job)
    assert cluster.until(lambda: job.name not in cluster.jobs, SETTLED), f"{job.name} is not released: {job}"


GOOD: dict[str, Fault] = {
    "burst": burst,
    "name held again": again,
    "fed hybrid": fed_hybrids,
    "half-open connections": half_open,
}
