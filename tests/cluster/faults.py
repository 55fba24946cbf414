"""The faults, one function each. A fault is a generator that yields how many seconds it lasts before it continues.

After a fault everything works again: engines run, cables are plugged in, and every decode worker is connected.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random

from tests.cluster import garbage
from tests.cluster.cluster import Cluster, Job
from tests.cluster.engine import Engine, sound
from tests.cluster.process import Process
from tests.paths import ROOT

from kvplan.runtime.errors import HandleError

Fault = Callable[[Cluster, Job | None, Random], Iterator[float]]


def kill_prefill(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """One worker dies at once; its engine is started again with the same name at the same addresses."""
    random.choice(cluster.prefill.workers).kill()
    yield random.uniform(0, 0.5)
    cluster.prefill.restart()
    cluster.forget(prefill=True)
    yield from connected(cluster)


def kill_decode(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    which = random.randrange(len(cluster.decode)) if job is None else job.decode
    random.choice(cluster.decode[which].workers).kill()
    yield random.uniform(0, 0.5)
    cluster.decode[which].restart()
    cluster.forget(prefill=False, which=which)
    yield from connected(cluster)


def freeze_prefill(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    yield from _frozen(cluster, cluster.prefill, random)


def freeze_decode(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    yield from _frozen(cluster, random.choice(cluster.decode), random)


def jump_prefill(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """The clock of one worker goes on at once by up to an hour, as after a sleep, or back."""
    sound(random.choice(cluster.prefill.workers).call("jump", by=random.choice((-5, -0.5, 0.5, 5, 3600))))
    for _ in range(2):
        # A worker that takes its peers for silent says so when they speak next, which is once in a third of a second.
        yield 0.5
        yield from connected(cluster)


def jump_decode(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    sound(random.choice(random.choice(cluster.decode).workers).call("jump", by=random.choice((0.5, 5, 3600))))
    yield 0.05
    yield from connected(cluster)


def noise(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """Garbage at the address of a prefill worker, as messages and as bytes; at its other ports, bytes.

    If engines are hosts, it comes from the host of a decode engine.
    """
    number = random.randrange(len(cluster.prefill.workers))
    address, worker = cluster.prefill.addresses[number], cluster.prefill.workers[number]
    others = garbage.ports(worker.process.pid) if isinstance(worker, Process) else []
    prefix = random.choice(cluster.decode).host.prefix if cluster.prefill.host else ()  # type: ignore[union-attr]
    words = [address, str(random.random()), *map(str, others)]
    sender = subprocess.Popen([*prefix, sys.executable, "-m", "tests.cluster.garbage", *words], cwd=ROOT)
    try:
        while sender.poll() is None:
            yield 0.02
    finally:
        sender.kill()
        sender.wait(20)
    assert sender.returncode == 0, "no garbage was thrown"


def cancel(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    for one in [job] if job else list(cluster.jobs.values()):
        cluster.cancel(one)
    yield 0.0


def withdraw(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """The prefill engine gives requests up."""
    for one in [job] if job else list(cluster.jobs.values()):
        if one.theirs is not None:
            cluster.prefill.every("withdraw", request=one.name)
    yield 0.0


def sleep_prefill(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """The engine gives its memory back and gets memory of another size."""
    yield from _slept(cluster, cluster.prefill, random)


def sleep_decode(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    yield from _slept(cluster, random.choice(cluster.decode), random)


def cut(cluster: Cluster, job: Job | None, random: Random) -> Iterator[float]:
    """The cable of the prefill engine's host is pulled."""
    host = cluster.prefill.host
    assert host is not None
    host.cut()
    try:
        yield random.choice((0.1, 0.5, 3.0))
    finally:
        host.heal()
    yield from connected(cluster)


def connected(cluster: Cluster) -> Iterator[float]:
    """Every decode worker meets the prefill engine, which may take some tries after a fault."""
    for _ in range(20):
        answers = cluster.connect(10)
        if all(word["ok"] for word in answers):
            return
        yield 0.2
    raise AssertionError(f"no connection after a fault: {answers}")


def _frozen(cluster: Cluster, engine: Engine, random: Random) -> Iterator[float]:
    worker = random.choice(engine.workers)
    worker.freeze()
    try:
        yield random.choice((0.1, 0.5, 2.0))
    finally:
        worker.thaw()
    yield from connected(cluster)


def _slept(cluster: Cluster, engine: Engine, random: Random) -> Iterator[float]:
    """Workers whose memory is in use refuse to sleep, and go on."""
    answers = engine.every("suspend")
    for word in answers:
        assert word["ok"] or word["code"] == HandleError.code, word["text"]
    yield random.uniform(0, 0.2)
    logical = engine.setting.logical + random.randrange(9)
    for worker, word in zip(engine.workers, answers, strict=True):
        if word["ok"]:
            awake = worker.call("resume", logical=logical)
            assert awake["ok"], awake["text"]
    yield from connected(cluster)


EVERYWHERE: dict[str, Fault] = {
    "kill prefill": kill_prefill,
    "kill decode": kill_decode,
    "freeze prefill": freeze_prefill,
    "freeze decode": freeze_decode,
    "clock of prefill": jump_prefill,
    "clock of decode": jump_decode,
    "garbage": noise,
    "cancel": cancel,
    "withdraw": withdraw,
    "sleep prefill": sleep_prefill,
    "sleep decode": sleep_decode,
}
HOSTS: dict[str, Fault] = {"cut": cut}
