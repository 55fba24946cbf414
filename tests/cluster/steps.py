"""Bring a request to one step of its way, hold it there, and let it go on."""

from __future__ import annotations

import time

from tests.cluster.cluster import Cluster, Job
from tests.cluster.engine import Engine
from tests.slowness import slowness

END = 45
WAIT = 10.0


def claim(cluster: Cluster, timeout: float) -> Job:
    """Decode has asked, prefill has not answered."""
    job = prepared(cluster, timeout)
    cluster.prefill.every("deaf", deaf=True)
    cluster.ask(job)
    _stays(cluster, job, 0.1)
    return job


def read(cluster: Cluster, timeout: float) -> Job:
    """The bytes are moving, by either side."""
    job, mover = prepared(cluster, timeout), _mover(cluster)
    mover.every("odds", stuck=1)
    cluster.ask(job)
    assert cluster.until(lambda: _moving(cluster, job, mover), WAIT * slowness()), job.outcomes
    return job


def done(cluster: Cluster, timeout: float) -> Job:
    """All bytes have come, and prefill has not said that it held them until then. Only where decode reads."""
    assert cluster.mode == "pull"
    job = read(cluster, timeout)
    cluster.prefill.every("deaf", deaf=True)
    cluster.decode[job.decode].every("odds")
    assert cluster.until(lambda: _arrived(cluster, job), WAIT * slowness()), job.outcomes
    _stays(cluster, job, 0.05)
    return job


def fed(cluster: Cluster, timeout: float) -> Job:
    """Some of the tokens were offered, more are to come."""
    job = prepared(cluster, timeout, fed=True)
    cluster.ask(job)
    shape = cluster.prefill.setting.shape
    cluster.feed(job, 4 * shape.kernel * shape.ratio)
    _stays(cluster, job, 0.2)
    return job


def prepared(cluster: Cluster, timeout: float, fed: bool = False) -> Job:
    job = cluster.prepare((0, END), timeout, fed=fed)
    assert job is not None
    return job


def go_on(cluster: Cluster) -> None:
    """Let everyone who can hear answer again, without waiting for who cannot."""
    for engine in (cluster.prefill, *cluster.decode):
        for worker in engine.workers:
            if worker.alive:
                worker.send("odds")
                if engine is cluster.prefill:
                    worker.send("deaf", deaf=False)


STEPS = {"claim": claim, "read": read, "done": done, "fed": fed}


def _mover(cluster: Cluster) -> Engine:
    return cluster.decode[0] if cluster.mode == "pull" else cluster.prefill


def _moving(cluster: Cluster, job: Job, mover: Engine) -> bool:
    """Every mover moves, and every prefill worker has said that it holds the request."""
    phases = [word["phases"] for word in cluster.decode[job.decode].every("progress", request=job.name)]
    held = all(phase == "moving" for each in phases for phase in each)
    return held and all(word["live"].get("handles") for word in mover.every("stats"))


def _arrived(cluster: Cluster, job: Job) -> bool:
    return all(word["progress"] > 0.99 for word in cluster.decode[job.decode].every("progress", request=job.name))


def _stays(cluster: Cluster, job: Job, seconds: float) -> None:
    """It has not ended, and does not."""
    until = time.monotonic() + seconds
    cluster.until(lambda: time.monotonic() > until, WAIT * slowness())
    assert not job.outcomes, job.outcomes
