"""The hazards of NIXL between processes: targets that die, freeze, unmap and restart; reads and closes in flight."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.paths import ROOT
from tests.runtime.helpers.agents import UNIT, Target, Two, has_nixl, index, pattern, progressed, region, units

from kvplan.runtime import Nixl, errors
from kvplan.runtime.transport.nixl import api

if not has_nixl():
    pytest.skip("NIXL is not installed", allow_module_level=True)


@pytest.fixture(params=["shared memory", "tcp"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A target over both kinds of transport: one copies at once, the other needs the target to act."""
    if request.param == "tcp":
        monkeypatch.setenv("UCX_TLS", "tcp")
    made = Target()
    yield made
    made.close()


@pytest.fixture
def tcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setenv("UCX_TLS", "tcp")
    made = Target(1 << 22)
    yield made
    made.close()


def polled(handle: Any, agent: Any, rounds: int = 200) -> list[bool]:
    found = []
    for _ in range(rounds):
        agent.progress()
        found.append(handle.poll())
    return found


def is_lost(call: Callable[[], Any], agent: Any) -> None:
    """`call` ends in PeerLostError, and soon."""

    def met() -> bool:
        try:
            call()
        except errors.PeerLostError:
            return True
        return False

    progressed(met, agent)


def test_a_target_killed_in_flight_is_lost(tcp: Target) -> None:
    tcp.meet()
    tcp.freeze()
    handle = tcp.post()
    assert not any(polled(handle, tcp.reader, 20))
    tcp.kill()
    is_lost(handle.poll, tcp.reader)
    with pytest.raises(errors.HandleError):
        handle.poll()
    handle.release()


def test_a_target_dead_before_the_post_is_lost(target: Target) -> None:
    target.meet()
    done = target.post()
    target.finish(done)
    target.kill()
    is_lost(lambda: target.finish(target.post()), target.reader)
    assert done.poll()


def test_a_dead_target_is_found_lost_without_a_post(target: Target) -> None:
    target.meet()
    assert not target.reader.lost(target.peer)
    target.kill()
    progressed(lambda: target.reader.lost(target.peer), target.reader)


def test_a_frozen_target_is_neither_lost_nor_done(tcp: Target) -> None:
    """NIXL says PROC forever: the deadline is above the transport, and the read ends once the target goes on."""
    tcp.meet()
    tcp.freeze()
    handle = tcp.post()
    assert not any(polled(handle, tcp.reader))
    assert not tcp.reader.lost(tcp.peer)
    tcp.thaw()
    tcp.finish(handle)
    assert np.array_equal(tcp.mine, pattern(tcp.mine.size))


def test_nothing_is_done_before_the_target_polls(target: Target) -> None:
    target.freeze()
    handle = target.post()
    assert not any(polled(handle, target.reader))
    target.thaw()
    target.finish(handle)
    assert np.array_equal(target.mine, pattern(target.mine.size))


def test_a_read_in_flight_is_not_released_and_its_bytes_do_come(tcp: Target) -> None:
    tcp.meet()
    tcp.freeze()
    handle = tcp.post()
    with pytest.raises(errors.HandleError, match="may still"):
        handle.release()
    tcp.thaw()
    tcp.finish(handle)
    handle.release()
    assert np.array_equal(tcp.mine, pattern(tcp.mine.size))


def test_nothing_lands_after_registrations_are_given_back_in_flight(tcp: Target) -> None:
    tcp.meet()
    tcp.freeze()
    handle = tcp.post()
    tcp.reader.deregister()
    before = tcp.mine.copy()
    tcp.thaw()
    time.sleep(0.5)
    assert np.array_equal(tcp.mine, before)
    with pytest.raises(errors.PeerLostError):
        handle.poll()


def test_nothing_is_posted_after_registrations_are_given_back(target: Target) -> None:
    target.meet()
    local = target.reader.prepare(None, units(target.mine), "DRAM")
    far = np.array([[int(target.address), UNIT, 0, UNIT, 4]])
    remote = target.reader.prepare(target.peer, far, "DRAM")
    target.reader.deregister()
    with pytest.raises(errors.TransportError):
        target.reader.post("READ", target.peer, local, index(1), remote, index(1))
    with pytest.raises(errors.TransportError):
        target.reader.post_spans("READ", target.peer, region(target.mine[:64]), "DRAM", far[:, :3], "DRAM")
    assert not target.mine.any()
    target.reader.register(region(target.mine), "DRAM")
    target.peer = target.reader.add_peer(target.metadata)
    target.meet()


def test_nothing_lands_after_a_close_in_flight(tcp: Target) -> None:
    tcp.meet()
    tcp.freeze()
    tcp.post()
    tcp.reader.close()
    before = tcp.mine.copy()
    tcp.thaw()
    time.sleep(0.5)
    assert np.array_equal(tcp.mine, before)


def moving(target: Target) -> Any:
    """A process of its own that writes to the target all the time, and has begun."""
    size = str(target.mine.nbytes)
    run = [sys.executable, "-m", "tests.runtime.helpers.writer_process", target.metadata.hex(), target.address, size]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(run, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "moved\n"
    return process


def survives(target: Target) -> None:
    """UCX aborts within a second where it does."""
    for _ in range(15):
        time.sleep(0.1)
        assert target.tell("alive") == "alive"
    target.finish(target.post())


@pytest.mark.parametrize("lags", [False, True])
def test_a_target_survives_a_writer_that_dies(tcp: Target, lags: bool) -> None:
    """It might not survive a reader's death: over TCP, UCX aborts a process that answers a read of an ended one."""
    process = moving(tcp)
    if lags:
        tcp.freeze()
        time.sleep(0.2)
    process.kill()
    process.communicate()
    tcp.thaw()
    survives(tcp)


def test_memory_that_the_target_unmapped_is_a_lost_peer(target: Target) -> None:
    target.meet()
    assert target.tell("unmap") == "unmap"
    is_lost(lambda: target.finish(target.post()), target.reader)


def test_memory_that_the_target_gave_back_is_a_lost_peer(target: Target) -> None:
    """Shared memory could still be read, but the agent that registered it has ended, and with it the connection."""
    target.meet()
    assert target.tell("deregister") == "deregister"
    is_lost(lambda: target.finish(target.post()), target.reader)


def test_a_lost_peer_is_forgotten_and_a_restarted_one_met(target: Target) -> None:
    target.meet()
    target.kill()
    is_lost(lambda: target.finish(target.post()), target.reader)
    target.reader.remove_peer(target.peer)
    with pytest.raises(errors.TransportError):
        target.post()
    again = Target()
    try:
        peer = target.reader.add_peer(again.metadata)
        assert peer != target.peer
        again.meet()
        target.peer, target.address = peer, again.address
        target.meet()
    finally:
        again.close()


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two("nixl")
    yield made
    made.close()


@pytest.mark.parametrize("missing", [1, 8, 100])
def test_truncated_metadata_cannot_block_the_next_of_that_name(two: Two, missing: int) -> None:
    """NIXL never talks to a name again whose metadata came cut off; a restarted worker has another name."""
    first = two.agent("nixl", "prefill-0")
    first.register(region(two.theirs), "DRAM")
    with pytest.raises(errors.TransportError):
        two.reader.add_peer(first.metadata()[:-missing])
    first.close()
    again = two.agent("nixl", "prefill-0")
    again.register(region(two.theirs), "DRAM")
    peer = two.reader.add_peer(again.metadata())
    local, remote = two.lists()[0], two.reader.prepare(peer, units(two.theirs), "DRAM")
    handle = two.reader.post("READ", peer, local, index(7), remote, index(7))
    progressed(handle.poll, two.reader, again)
    assert np.array_equal(two.mine[7 * UNIT : 8 * UNIT], two.theirs[7 * UNIT : 8 * UNIT])
    handle.release()
    two.reader.remove_peer(peer)
    again.close()


def test_notifications_of_strangers_are_drained_and_counted(two: Two) -> None:
    """Whatever they hold: nothing that NIXL delivers is looked at; an empty one is a probe, and not counted."""
    for message in (b"", b"\0", bytes(range(256)), b"x" * (1 << 20)):
        two.reader.agent.send_notif(two.peer, message)
    seen: list[int] = []

    def drained() -> bool:
        two.reader.progress()
        seen.append(two.owner.progress())
        return sum(seen) >= 3

    progressed(drained)
    assert sum(seen) == 3
    assert two.works()


def test_threads_share_an_agent(two: Two) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(50):
                at = number * 50 + turn
                handle = two.post(at)
                progressed(handle.poll, two.reader, two.owner)
                handle.release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures
    assert np.array_equal(two.mine[: 200 * UNIT], two.theirs[: 200 * UNIT])
    assert not two.mine[200 * UNIT :].any()


def test_agents_have_no_threads_of_their_own_and_strict_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A progress thread burns a core, and an agent without locks is not for several threads."""
    module, seen = api(), []
    real = module.nixl_agent_config

    def config(**options: Any) -> Any:
        seen.append(options)
        return real(**options)

    monkeypatch.setattr(module, "nixl_agent_config", config)
    before = set(os.listdir("/proc/self/task"))
    agent = Nixl("quiet")
    (options,) = seen
    assert (options["enable_prog_thread"], options["enable_listen_thread"]) == (False, False)
    assert options["sync_mode"] == module.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    spinning = {task for task in set(os.listdir("/proc/self/task")) - before if burns(task)}
    agent.close()
    assert not spinning


def burns(task: str) -> bool:
    """Whether a thread of this process is running: one that waits is not."""
    states = []
    for _ in range(20):
        with open(f"/proc/self/task/{task}/stat") as file:
            states.append(file.read().rpartition(")")[2].split()[0])
        time.sleep(0.002)
    return states.count("R") == len(states)


START = "from kvplan.runtime import Nixl; Nixl('worker')"


def test_transports_that_ucx_cannot_make_are_a_named_error() -> None:
    """Shared memory alone lacks what NIXL's error handling needs."""
    environment = {**os.environ, "UCX_TLS": "posix,cma,self"}
    run = subprocess.run(
        [sys.executable, "-c", START], env=environment, cwd=ROOT / "docs", capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert "TransportError: NIXL: nixlBackendError" in run.stderr
    assert "UCX_TLS=posix,cma,self may lack what is here" in run.stderr


HARM = """
import numpy as np
from tests.runtime.helpers.agents import Two, index, units
two = Two("nixl")
local, remote = two.lists()
handle = two.post(1)
two.finish(handle)
handle.release()
calls = [
    lambda: two.reader.prepare(None, np.array([[8, -4, 0, 64, 1]]), "DRAM"),
    lambda: two.reader.prepare(two.peer, np.array([[-10, 100, 0, 64, 2]]), "DRAM"),
    lambda: two.reader.prepare(two.peer, np.array([[two.theirs.ctypes.data, 64, 0, 1 << 60, 100]]), "DRAM"),
    lambda: handle.poll(),
    lambda: two.owner.post("READ", two.peer, local, index(0), remote, index(0)),
    lambda: two.reader.post("READ", two.peer, remote, index(0), local, index(0)),
    lambda: (local.release(), two.reader.post("READ", two.peer, local, index(0), remote, index(0))),
]
from kvplan.runtime.errors import KvplanError
codes = []
for call in calls:
    try:
        call()
    except KvplanError as error:
        codes.append(error.code)
two.close()
handle.release(), remote.release(), two.reader.close()
import sys
sys.stderr.write(" ".join(codes))
"""


def test_what_kills_a_process_with_bare_nixl_ends_well() -> None:
    """Wrapped addresses, released handles, lists of other agents: named errors, and an orderly end of the process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run(
        [sys.executable, "-c", HARM], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "R012 R012 R012 R033 R033 R033 R033")
