"""Workers in processes of their own, and what befalls them at every step of a request.

Whatever happens, a request ends within its deadline, nothing that is reported done has a wrong byte, what was written
is not trusted, every block becomes free again, and the next request is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from tests.cluster import faults, hosts, steps
from tests.cluster.cluster import Cluster, Job
from tests.cluster.engine import Engine
from tests.cluster.leaks import leaks, looks
from tests.cluster.setting import Setting, pairs
from tests.runtime.helpers.plans import Shape
from tests.slowness import slowness

from kvplan.runtime import errors
from kvplan.runtime.transport.nixl import api

try:
    api()
except errors.NixlMissingError:
    pytest.skip("NIXL is not installed", allow_module_level=True)

STATES = ("done", "failed", "timed_out", "died")
POSSIBLE = {
    "kill prefill": ("failed", "timed_out"),
    "kill decode": ("died",),
    "cancel": ("cancelled",),
    "withdraw": ("failed",),
    "garbage": ("done",),
}
SETTING = Setting("prefill", prefill=Shape(2), decode=Shape(1, kernel=2, ratio=2), lease=2.0, start=False)
TIMEOUT = 4.0


@contextmanager
def running(
    mode: str = "pull", *places: hosts.Host, setting: Setting = SETTING, secure: bool = False
) -> Iterator[Cluster]:
    """Two prefill workers, and one decode worker that is connected to both."""
    random, made, keys = Random(1), list[Engine](), pairs(secure)
    try:
        for role, place in zip(("prefill", "decode"), places or (None, None), strict=True):
            own = replace(setting, role=role, name=role, keys=keys[role], lease=setting.lease * slowness())
            made.append(Engine(own, random, host=place))
        cluster = Cluster(made[0], made[1:], random, mode)
        assert all(word["ok"] for word in cluster.connect(30))
        yield cluster
    finally:
        for engine in made:
            engine.close()


@pytest.fixture(scope="module")
def pull() -> Iterator[Cluster]:
    with running("pull") as made:
        yield made


@pytest.fixture(scope="module")
def push() -> Iterator[Cluster]:
    with running("push") as made:
        yield made


# Every fault at every step takes minutes: all of them run before a soak, these always.
ALL = "SOAK_S" in os.environ
KINDS: list[dict[str, bool]] = [
    {"checksum": True},
    {"fed": True, "layered": True},
    *([{}, {"fed": True}] if ALL else []),
]


def strike(cluster: Cluster, step: str, kind: str) -> Job:
    """A request that has ended after a fault at a step of its way."""
    try:
        job = steps.STEPS[step](cluster, TIMEOUT * slowness())
    except AssertionError:
        steps.go_on(cluster)
        raise
    fault = {**faults.EVERYWHERE, **faults.HOSTS}[kind](cluster, job, Random(f"{step} {kind}"))
    seconds = next(fault)
    cluster.until(lambda: False, seconds)
    steps.go_on(cluster)
    for seconds in fault:
        cluster.until(lambda: False, seconds)
    if job.fed and job.theirs is not None and not job.outcomes:
        cluster.feed(job, job.tokens[1])
    if cluster.finish(job) != "done" and job.theirs is not None:
        cluster.prefill.every("withdraw", request=job.name)
    return job


def well(cluster: Cluster) -> None:
    """Nothing went wrong, and the next requests are done: whole with checksums, and fed layer by layer."""
    for kind in KINDS:
        fed = "fed" in kind
        job = cluster.begin((3, 50), 10 * slowness(), **kind)
        assert job is not None
        if fed:
            for end in (8, 24, 50):
                cluster.feed(job, end, late=end)
        assert cluster.finish(job) == "done", job.outcomes
    assert cluster.settle(15 * slowness()) == []
    assert cluster.tally.wrong == cluster.audit() == []
    assert cluster.prefill.blocks.used() == cluster.decode[0].blocks.used() == {"kv": 0, "state": 0}


PULL = [
    ("read", "kill prefill"),
    ("done", "kill decode"),
    ("done", "freeze prefill"),
    ("fed", "cancel"),
    ("read", "clock of decode"),
    ("claim", "garbage"),
    ("read", "sleep prefill"),
]
PUSH = [("read", "kill prefill"), ("read", "freeze decode"), ("read", "withdraw")]
EVERY = [(step, kind) for step in steps.STEPS for kind in faults.EVERYWHERE]


@pytest.mark.parametrize(("step", "kind"), EVERY if ALL else PULL)
def test_faults_where_decode_reads(pull: Cluster, step: str, kind: str) -> None:
    job = strike(pull, step, kind)
    assert job.state in POSSIBLE.get(kind, STATES), job.outcomes
    well(pull)


@pytest.mark.parametrize(("step", "kind"), [one for one in EVERY if one[0] != "done"] if ALL else PUSH)
def test_faults_where_prefill_writes(push: Cluster, step: str, kind: str) -> None:
    job = strike(push, step, kind)
    assert job.state in POSSIBLE.get(kind, STATES), job.outcomes
    well(push)


def retried(cluster: Cluster, step: str) -> None:
    """The same request under the same id, into the same blocks, after it was cancelled at a step of its way."""
    job = steps.STEPS[step](cluster, TIMEOUT * slowness())
    job.again, blocks = True, job.ours
    cluster.cancel(job)
    steps.go_on(cluster)
    assert cluster.until(lambda: bool(cluster.retries), 10), job.outcomes
    assert job.state == "cancelled"
    assert cluster.retry(cluster.retries.pop())
    if job.fed:
        cluster.feed(job, job.tokens[1])
    assert cluster.finish(job) == "done", job.outcomes
    assert job.ours in (blocks, None)
    well(cluster)


# Not when all has come: a worker that knows this no longer holds the request.
@pytest.mark.parametrize("step", ("claim", "read", "fed") if ALL else ("fed",))
def test_a_request_that_was_read_in_part_is_asked_for_again(pull: Cluster, step: str) -> None:
    retried(pull, step)


@pytest.mark.parametrize("step", ("claim", "read", "fed") if ALL else ("read",))
def test_a_request_that_was_written_in_part_is_asked_for_again(push: Cluster, step: str) -> None:
    retried(push, step)


def test_engines_with_keys() -> None:
    """Requests are done, and an engine with other keys, or none, does not get in."""
    with running(secure=True) as made:
        well(made)
        for stranger, timeout in ((pairs(True)["decode"], 10.0), (None, 3.0)):
            one = Engine(replace(SETTING, role="decode", name="stranger", keys=stranger), Random(2))
            try:
                answer = one.workers[0].call("connect", address=made.prefill.addresses[0], timeout=timeout)
            finally:
                one.close()
            # Without keys ZeroMQ may never tell, and then it is the deadline that ends it.
            never = {errors.HandshakeError.code} if stranger is None else set[str]()
            assert answer["code"] in {errors.KeysError.code, *never}
        well(made)


def test_a_handshake_with_a_frozen_or_dead_worker_meets_its_deadline(pull: Cluster) -> None:
    pull.decode[0].restart()
    pull.forget(prefill=False)
    decode, prefill = pull.decode[0].workers[0], pull.prefill.workers[1]
    for befall in (prefill.freeze, prefill.kill):
        befall()
        began = time.monotonic()
        answer = decode.call("connect", address=pull.prefill.addresses[0], timeout=0.5)
        assert answer["code"] == errors.HandshakeError.code
        assert time.monotonic() - began < 10
    pull.prefill.restart()
    pull.forget(prefill=True)
    assert all(word["ok"] for word in pull.connect(20))
    well(pull)


def test_a_restarted_engine_is_another_one(pull: Cluster) -> None:
    runs = [word["run"] for word in pull.connect()]
    pull.prefill.restart()
    pull.forget(prefill=True)
    again = [word["run"] for word in pull.connect(20)]
    assert [word["run"] for word in pull.connect()] == again != runs
    well(pull)


def test_what_is_the_same_for_all_requests_does_not_grow(pull: Cluster) -> None:
    well(pull)
    engines = [pull.prefill, *pull.decode]
    before = looks(engines)
    for _ in range(30):
        job = pull.begin((0, 60), 20)
        assert job is not None
        assert pull.finish(job) == "done", job.outcomes
    well(pull)
    assert leaks(before, looks(engines)) == []


@pytest.fixture(scope="module")
def apart() -> Iterator[Cluster]:
    if hosts.unable():
        pytest.skip(hosts.unable())
    with hosts.hosts(2) as places, running("pull", *places) as made:
        yield made


@pytest.mark.parametrize("step", steps.STEPS if ALL else ("read", "done"))
def test_a_cable_is_pulled_and_plugged_in_again(apart: Cluster, step: str) -> None:
    strike(apart, step, "cut")
    well(apart)


@pytest.mark.parametrize("kind", ["kill prefill", "freeze prefill", "kill decode"] if ALL else ["kill prefill"])
def test_faults_between_hosts(apart: Cluster, kind: str) -> None:
    strike(apart, "read", kind)
    well(apart)
