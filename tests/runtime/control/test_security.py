"""The resources that a peer with access can take from a worker are bounded, and the page states these bounds."""

from __future__ import annotations

import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zmq
from tests.paths import ROOT
from tests.runtime.helpers import control
from tests.runtime.helpers.callers import Caller, hold_of
from tests.runtime.helpers.made import instances
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world
from tests.runtime.transport.test_hazards import NAMED, functions
from zmq.auth.thread import AuthenticationThread

from kvplan.plan.request import LONGEST_ID
from kvplan.runtime import Blocks, Jit, errors
from kvplan.runtime.control import channel, sockets
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import LARGEST, Refusal
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.keys import Keys
from kvplan.runtime.control.sockets import QUEUE
from kvplan.runtime.plans.catalog import AsyncCatalog, Catalog
from kvplan.runtime.transfer.prepared import PreparedLinks
from kvplan.runtime.transport.inmemory import Hub, InMemory

PAGE = ROOT / "docs" / "security.md"


@pytest.fixture
def pair() -> World:
    return world(Shape(1), Shape(1))


def test_a_guard_that_died_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    guards = instances(monkeypatch, sockets.Guard)
    keys, _ = control.pair()
    stranger = zmq.curve_keypair()
    desk = ControlServer(control.BIND, keys)
    guards[0].stop()
    line = ControlClient(desk.address, Keys(*stranger, frozenset({keys.public})))
    line.send(wire.Claim(1, ()))
    desk.wait(1.0)
    found = desk.receive()
    line.close()
    desk.close()
    assert found == []


def test_a_server_whose_guard_cannot_start_is_a_named_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    keys, _ = control.pair()
    context = sockets.new_context()
    monkeypatch.setattr(channel, "new_context", lambda: context)
    monkeypatch.setattr(AuthenticationThread, "start", refuse)
    with pytest.raises(errors.HandshakeError, match="no thread can be started"):
        ControlServer(control.BIND, keys)
    assert context.closed


LONG = "x" * (LONGEST_ID + 1)


@pytest.mark.parametrize(
    "said",
    [
        wire.Leave(LONG),
        wire.Claim(1, (LONG,)),
        wire.Claim(1, ("r",), (), {LONG: {}}),
        wire.Claim(1, ("r",), (), {}, {LONG: (0, 1)}),
        wire.Done(LONG, 1, 1),
        wire.WriteRequest(LONG, (0, 1), {}, {}, {}),
    ],
    ids=lambda said: type(said).__name__,
)
def test_a_name_that_no_request_can_have_is_not_kept(worker: Any, caller: Caller, said: Any) -> None:
    caller.hello()
    caller.line.send(said)
    until(lambda: worker.counters.snapshot()["messages"].get("malformed"), worker.run_once)
    assert [client.claims for client in worker.inspect().readers] == [()]


def test_a_guard_whose_thread_died_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[AuthenticationThread]()

    async def die(thread: AuthenticationThread) -> None:
        threads.append(thread)
        thread.started.set()

    keys, _ = control.pair()
    monkeypatch.setattr(AuthenticationThread, "_run", die)
    context = sockets.new_context()
    monkeypatch.setattr(channel, "new_context", lambda: context)
    desk = ControlServer(control.BIND, keys)
    threads[0].join()
    desk.close()
    assert context.closed


def test_a_peer_that_was_met_can_read_and_write_all_that_is_registered(pair: World) -> None:
    """One-sided access needs the metadata, but neither a request nor a hold."""
    theirs, ours = pair.prefill_memory[0], pair.decode_memory[0]
    name = next(iter(theirs))
    theirs[name][:] = 7
    spans = [np.array([[one[name].ctypes.data, one[name].nbytes, 0]]) for one in (ours, theirs)]
    transport, peer = pair.transport(pair.decode[0]), pair.prefill[0].inspect().transport
    assert transport.post_spans("READ", peer, spans[0], "DRAM", spans[1], "DRAM").poll()
    assert (ours[name] == 7).all()
    ours[name][:] = 8
    assert transport.post_spans("WRITE", peer, spans[0], "DRAM", spans[1], "DRAM").poll()
    assert (theirs[name] == 8).all()


def test_a_peer_that_speaks_for_another_makes_it_fail_and_never_done(worker: Any, caller: Caller) -> None:
    """A peer chooses its name and run, which are not tied to its key."""
    caller.hello()
    worker.hold("r")
    number = hold_of(caller, "r")
    other = Caller(worker, run=caller.run)
    other.hello()
    assert other.ask(wire.Done("r", number, 1)) == wire.Confirmed("r", 1)
    assert [one.request for one in worker.released()] == ["r"]
    worker.hold("r", {"kv": Blocks(0, np.array([7]))})
    told = [caller.ask(wire.Done("r", number, 1)), caller.hear(0.1)]
    problems = [one.message for one in told if isinstance(one, wire.Failed) and one.attempt == 1]
    assert len(problems) == 1
    assert "read again" in problems[0]
    assert not any(isinstance(one, wire.Confirmed) for one in told)
    other.line.close()


def test_connections_are_bounded(worker: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.prefill.peers.MOST", 1)
    caller.hello()
    late = Caller(worker, run="d2")
    answer = late.hello()
    assert isinstance(answer, Refusal)
    assert answer.again
    assert "the most that it takes" in answer.message
    assert isinstance(caller.ask(wire.Claim(1, ())), wire.ClaimAnswers)
    late.line.close()


def test_unlike_sets_of_layers_are_bounded() -> None:
    made: list[Any] = []
    links = PreparedLinks(lambda layers: made.append(layers))  # type: ignore[arg-type, func-returns-value, return-value]
    for layer in range(1024):
        links.of(frozenset({layer}))
    with pytest.raises(errors.LimitedError):
        links.of(frozenset({1024}))
    links.of(frozenset({5}))
    assert len(made) == 1024


def test_groups_of_a_message_are_bounded() -> None:
    table = wire.WireTable("blocks", 0, b"")
    with pytest.raises(errors.CardError):
        wire.unpack({str(number): table for number in range(wire.MOST_GROUPS + 1)})


def test_plans_that_are_asked_for_at_once_are_bounded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    patient, asked = AsyncCatalog(Catalog(tmp_path, jit=Jit(60))), list[Any]()

    def never(_: ThreadPoolExecutor, *key: Any) -> Future[Any]:
        asked.append(key)
        return Future()

    monkeypatch.setattr(ThreadPoolExecutor, "submit", never)
    for number in range(100):
        with pytest.raises(errors.PlanPendingError):
            patient.find("m", "d", (str(number), "tp=1"), ("d", "tp=1"))
    assert len(asked) == 16


def test_memory_that_nobody_registered_is_out_of_reach_of_the_runtime() -> None:
    """This holds for kvplan's own posts; it cannot check posts that a peer's transport makes by itself."""
    hub = Hub()
    mine, theirs, secret = np.zeros(64, np.uint8), np.zeros(64, np.uint8), np.ones(64, np.uint8)
    one, other = InMemory(hub), InMemory(hub)
    one.register(np.array([[mine.ctypes.data, 64, 0]]), "DRAM")
    other.register(np.array([[theirs.ctypes.data, 64, 0]]), "DRAM")
    peer = one.add_peer(other.metadata())
    spans = [np.array([[array.ctypes.data, 64, 0]]) for array in (mine, secret)]
    with pytest.raises(errors.AddressError):
        one.post_spans("READ", peer, spans[0], "DRAM", spans[1], "DRAM")
    assert not mine.any()


def rows() -> list[list[str]]:
    """The rows of every table of the page that ends in a test, cell by cell, without the heads."""
    found: list[list[str]] = []
    for table in re.findall(r"^\|.*\| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE):
        found += [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return found


def test_every_threat_and_every_bound_has_a_test() -> None:
    assert len(rows()) > 40
    for row in rows():
        assert len(row) == 3, row
        assert all(row), row
        assert NAMED.search(row[2]) or row[2].startswith("none: "), row


def test_every_test_that_the_page_names_exists() -> None:
    found = NAMED.findall(PAGE.read_text())
    assert [f"{file}::{name}" for file, name in found if name not in functions(ROOT / "tests" / file)] == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16 MiB", LARGEST >> 20),
        ("256 messages", QUEUE),
        ("4,096 groups", wire.MOST_GROUPS),
        ("256 commands", Jit(1).most),
    ],
)
def test_numbers_on_the_page_are_those_of_the_code(text: str, number: int) -> None:
    assert text in PAGE.read_text()
    assert number == int(text.split()[0].replace(",", ""))


def test_a_process_that_was_forked_off_ends_without_waiting_for_the_guard_of_its_parent() -> None:
    desk = ControlServer(control.BIND, control.pair()[0])
    child = os.fork()
    if not child:
        # The child must not run the exit handlers that pytest has registered.
        desk.close()
        os._exit(7)
    until(lambda: os.waitpid(child, os.WNOHANG)[0] == child)
    desk.close()
