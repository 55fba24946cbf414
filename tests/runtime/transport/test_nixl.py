"""NIXL with both ends in this process: every byte, the number of requests, and the hazards of its API."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from tests.end_to_end.memory import stamp, wrong
from tests.random_sides.draw import Case, case
from tests.runtime.helpers.agents import progressed
from tests.runtime.helpers.ends import asked, ends, regions_of
from tests.slowness import Patience

from kvplan.compiler.api import compile_bound
from kvplan.plan.request import check
from kvplan.plan.types import Ints
from kvplan.runtime import Nixl, errors
from kvplan.runtime.transfer.demand import demand
from kvplan.runtime.transport import nixl
from kvplan.runtime.transport.nixl import MODULES, api

try:
    api()
except errors.NixlMissingError:
    pytest.skip("NIXL is not installed", allow_module_level=True)

LENGTH = 1 << 16


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
    """Of random pairs of sides; NIXL counts what it posts."""
    drawn = (case(seed) for seed in range(100))
    few = (one for one in drawn if len(one.prefill.workers) + len(one.decode.workers) <= 4)
    moved = sum(every_byte(one, push) for one in islice(few, 6))
    assert moved > 1000


def every_byte(drawn: Case, push: bool) -> int:
    sides = drawn.prefill, drawn.decode
    made = compile_bound(*sides).plan
    world = ends(made, sides, drawn.request, lambda name: Nixl(name, telemetry=True))
    regions, checked = regions_of(sides, drawn.request), check(made, asked(drawn.request), {}, {})
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


class Two:
    """An agent that reads and one that is read, with a buffer each."""

    def __init__(self) -> None:
        self.reader, self.owner = Nixl("reader", telemetry=True), Nixl("owner")
        self.mine, self.theirs = np.zeros(LENGTH, np.uint8), np.arange(LENGTH, dtype=np.uint16).astype(np.uint8)
        self.reader.register(region(self.mine), "DRAM")
        self.owner.register(region(self.theirs), "DRAM")
        self.peer = self.reader.add_peer(self.owner.metadata())

    def lists(self, size: int = 64) -> tuple[Any, Any]:
        rows = [np.array([[a.ctypes.data, size, 0, size, LENGTH // size]]) for a in (self.mine, self.theirs)]
        return self.reader.prepare(None, rows[0], "DRAM"), self.reader.prepare(self.peer, rows[1], "DRAM")

    def read(self, index: np.ndarray) -> Any:
        local, remote = self.lists()
        return self.reader.post("READ", self.peer, local, index, remote, index)

    def until_done(self, handle: Any) -> None:
        progressed(handle.poll, self.owner, self.reader)

    def close(self) -> None:
        self.reader.close()
        self.owner.close()


def region(array: np.ndarray) -> Ints:
    return np.array([[array.ctypes.data, array.nbytes, 0]])


def index(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.close()


def test_a_handle_is_refused_after_its_release(two: Two) -> None:
    handle = two.read(index(1, 2))
    two.until_done(handle)
    assert handle.descriptors() == 1
    handle.release()
    handle.release()
    with pytest.raises(errors.HandleError, match="is released cannot be polled"):
        handle.poll()


def test_a_read_under_way_is_not_released(two: Two) -> None:
    handle = two.read(index(1))
    if handle.state == "done":
        pytest.skip("the read was done when it was posted")
    with pytest.raises(errors.HandleError, match="may still move bytes"):
        handle.release()
    two.until_done(handle)


def test_nothing_moves_while_the_target_does_not_poll(two: Two) -> None:
    handle = two.read(index(1))
    for _ in range(50):
        two.reader.progress()
        assert not handle.poll()
    two.until_done(handle)
    np.testing.assert_array_equal(two.mine[64:128], two.theirs[64:128])


def test_lists_of_another_agent_are_refused(two: Two) -> None:
    local, remote = two.lists()
    with pytest.raises(errors.HandleError, match="another agent"):
        two.owner.post("READ", two.peer, local, index(0), remote, index(0))
    with pytest.raises(errors.HandleError, match="another agent"):
        two.reader.post("READ", two.peer, remote, index(0), local, index(0))


def test_released_lists_are_refused(two: Two) -> None:
    local, remote = two.lists()
    remote.release()
    with pytest.raises(errors.HandleError, match="after its release"):
        two.reader.post("READ", two.peer, local, index(0), remote, index(0))


@pytest.mark.parametrize("wrong", [np.array([1]), np.array([1.7]), np.array([1 << 32])])
def test_indices_are_never_cast(two: Two, wrong: np.ndarray) -> None:
    local, remote = two.lists()
    with pytest.raises(errors.TransportError, match="int32"):
        two.reader.post("READ", two.peer, local, wrong, remote, wrong)


@pytest.mark.parametrize("at", [-1, LENGTH // 64])
def test_an_index_out_of_range_is_refused(two: Two, at: int) -> None:
    local, remote = two.lists()
    with pytest.raises(errors.TransportError, match="InvalidParam"):
        two.reader.post("READ", two.peer, local, index(at), remote, index(at))


@pytest.mark.parametrize(
    "row",
    [
        (0, 64, 0, 64, 1),
        (8, 0, 0, 64, 1),
        (8, (1 << 63) - 4, 0, 64, 1),
        (8, 64, 0, 1 << 60, 100),
        (8, 64, 0, 0, 2),
        (8, 64, -1, 64, 1),
    ],
)
def test_rows_that_wrap_or_are_empty_are_refused(two: Two, row: tuple[int, ...]) -> None:
    with pytest.raises(errors.AddressError):
        two.reader.prepare(None, np.array([row]), "DRAM")


def test_spans_that_wrap_or_are_empty_are_refused(two: Two) -> None:
    good = region(two.mine)
    for bad in ([[8, -4, 0]], [[8, 0, 0]], [[(1 << 63) - 10, 100, 0]]):
        with pytest.raises(errors.AddressError):
            two.reader.post_spans("READ", two.peer, np.array(bad), "DRAM", good, "DRAM")


def test_memory_that_is_not_registered_is_refused(two: Two) -> None:
    other = np.zeros(64, np.uint8)
    with pytest.raises(errors.TransportError, match="NotFound"):
        two.reader.prepare(None, np.array([[other.ctypes.data, 64, 0, 64, 1]]), "DRAM")


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


def test_a_restarted_peer_has_another_name(two: Two) -> None:
    again = Nixl("owner")
    again.register(region(two.theirs), "DRAM")
    assert again.name != two.owner.name
    peer = two.reader.add_peer(again.metadata())
    two.reader.remove_peer(peer)
    again.close()


def test_a_removed_peer_reads_nothing(two: Two) -> None:
    local, remote = two.lists()
    two.reader.remove_peer(two.peer)
    with pytest.raises(errors.TransportError):
        two.reader.post("READ", two.peer, local, index(0), remote, index(0))


def test_strays_of_any_bytes_are_counted_and_probes_are_not(two: Two) -> None:
    for message in [b"", bytes(range(256)), b"x" * (1 << 20)]:
        two.reader.agent.send_notif(two.peer, message)
    assert not two.reader.lost(two.peer)
    found, patience = 0, Patience(10)
    while found < 2 and patience.lasts():
        two.reader.progress()
        found += two.owner.progress()
    assert found == 2


def test_a_write(two: Two) -> None:
    two.mine[:] = 9
    local, remote = two.lists()
    handle = two.reader.post("WRITE", two.peer, local, index(3), remote, index(5))
    two.until_done(handle)
    assert (two.theirs[5 * 64 : 6 * 64] == 9).all()
    np.testing.assert_array_equal(
        two.theirs[6 * 64 : 7 * 64], np.arange(6 * 64, 7 * 64, dtype=np.uint16).astype(np.uint8)
    )
    assert (two.mine == 9).all()


def test_neither_a_read_nor_a_write_is_refused(two: Two) -> None:
    local, remote = two.lists()
    for word in ("read", "", "READ ", None):
        with pytest.raises(errors.NotBegunError, match="READ or WRITE"):
            two.reader.post(word, two.peer, local, index(0), remote, index(0))  # type: ignore[arg-type]
        with pytest.raises(errors.NotBegunError, match="READ or WRITE"):
            two.reader.post_spans(word, two.peer, region(two.mine), "DRAM", region(two.theirs), "DRAM")  # type: ignore[arg-type]


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
