"""NIXL with both ends in this process: every byte, the number of requests, and the hazards of its API."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from tests.end_to_end.memory import regions_of, stamp, wrong
from tests.random_sides.draw import Case, case
from tests.runtime.helpers.agents import Two, index, region
from tests.runtime.helpers.ends import asked, ends

from kvplan.compiler.api import compile_bound
from kvplan.plan.request import check
from kvplan.runtime import Nixl, errors
from kvplan.runtime.transfer.demand import demand
from kvplan.runtime.transport import nixl
from kvplan.runtime.transport.nixl import MODULES, api

try:
    api()
except errors.NixlMissingError:
    pytest.skip("NIXL is not installed", allow_module_level=True)


def listening() -> set[tuple[str, int]]:
    """Host and port of each TCP socket of this process that listens."""
    found = set[tuple[str, int]]()
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and one.family != socket.AF_UNIX:
                    found.add(one.getsockname()[:2])
        except OSError:
            continue
    return found


def test_an_agent_of_loopback_opens_no_port_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says of devices, which is as before once the agent is there."""
    monkeypatch.setenv("UCX_NET_DEVICES", "all")
    before = listening()
    agent = Nixl("here", loopback=True)
    try:
        opened = listening() - before
        assert opened
        assert all(ipaddress.ip_address(host).is_loopback for host, _ in opened)
    finally:
        agent.close()
    assert os.environ["UCX_NET_DEVICES"] == "all"


@pytest.mark.parametrize("push", [False, True], ids=["read", "write"])
def test_every_byte_and_the_predicted_requests(push: bool) -> None:
    """Random pairs of sides move their bytes; NIXL counts its posts."""
    drawn = (case(seed) for seed in range(100))
    few = (one for one in drawn if len(one.prefill.workers) + len(one.decode.workers) <= 4)
    moved = sum(every_byte(one, push) for one in islice(few, 6))
    assert moved > 1000


def every_byte(drawn: Case, push: bool) -> int:
    sides = drawn.prefill, drawn.decode
    made = compile_bound(*sides).plan
    world = ends(made, sides, drawn.request, lambda name: Nixl(name, telemetry=True))
    regions, checked = regions_of(sides, [drawn.request]), check(made, asked(drawn.request), {}, {})
    for memory in world.prefill:
        stamp(memory, regions, drawn.request.prefill)
    moved = 0
    for worker, memory in enumerate(world.decode):
        wanted = demand(made, worker, checked)
        for theirs in sorted({read.worker for read in made.reads[worker]} if wanted.runs else ()):
            runs = wanted.of(made.prefill.workers[theirs].shard)
            moved += world.move(world.link(theirs, worker, push), runs).bytes
        assert wrong(memory, regions, drawn.request, made.skipped) == []
    world.close()
    return moved


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two("nixl")
    yield made
    made.close()


def test_memory_that_ucx_takes_for_the_host_s_says_what_to_do() -> None:
    agent, memory = Nixl("alone"), np.zeros(4096, np.uint8)
    try:
        with pytest.raises(errors.TransportError, match="UCX_TLS unset or with cuda; NIXL_LOG_LEVEL=WARN says more"):
            agent.register(np.array([[memory.ctypes.data, memory.nbytes, 0]]), "VRAM")
    finally:
        agent.close()


@pytest.mark.parametrize("shared", [True, False])
def test_a_gpu_s_memory_that_no_other_process_can_map_is_logged(
    shared: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Nixl("alone")
    monkeypatch.setattr(type(agent.agent), "register_memory", lambda *_: None)
    monkeypatch.setattr(nixl, "shareable", lambda address: shared or address != 8192)
    agent.register(np.array([[4096, 64, 1], [8192, 64, 1]]), "VRAM")
    assert ("expandable segments" in caplog.text) == (not shared)
    agent.close()


def test_a_gpu_s_memory_is_registered_on_its_own_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, asked = Nixl("alone"), list[tuple[int, int]]()

    def check_device(address: int, said: int) -> None:
        asked.append((address, said))
        raise errors.RegisterError("on another device")

    monkeypatch.setattr(nixl, "check_device", check_device)
    monkeypatch.setattr(type(agent.agent), "register_memory", lambda *_: pytest.fail("it is registered"))
    with pytest.raises(errors.RegisterError):
        agent.register(np.array([[4096, 64, 1]]), "VRAM")
    assert asked == [(4096, 1)]
    agent.close()


def test_what_was_tried_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.NixlMissingError) as caught:
        api()
    assert all(name in str(caught.value) for name in MODULES)


def test_an_old_nixl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.4.9")
    with pytest.raises(errors.NixlMissingError, match=r"version 1\.4"):
        api()


def test_a_read_that_did_not_begin_is_told_from_one_that_failed(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = two.lists()
    far, near = np.array([[8, 64, 0]]), region(two.mine[:64])
    with pytest.raises(errors.NotBegunError):
        two.reader.post("READ", two.peer, local, index(1 << 20), remote, index(0))
    with pytest.raises(errors.NotBegunError):
        two.reader.post_spans("READ", two.peer, near, "DRAM", far, "DRAM")
    monkeypatch.setattr(two.reader.agent, "transfer", lambda handle: "ERR")
    with pytest.raises(errors.TransportError) as caught:
        two.reader.post("READ", two.peer, local, index(0), remote, index(0))
    assert not isinstance(caught.value, errors.HandleError)
