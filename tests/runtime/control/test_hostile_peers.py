"""A peer that was let in and means harm: floods, absurd numbers, blocks that are not its own.

Whatever it does, nothing that it says raises, memory, descriptors and threads stay bounded, nobody's blocks are freed
or written, and a good peer is answered all the while.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.runtime.control.test_channel import descriptors
from tests.runtime.helpers import control
from tests.runtime.helpers.callers import Caller
from tests.runtime.helpers.made import instances
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world
from tests.slowness import Patience

from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.keys import Plain
from kvplan.runtime.control.sockets import ENOUGH
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.writes import RequestWrites

MIB = 1 << 20
# Memory may grow by MORE: the queue of one peer is bounded, and the allocator keeps memory that was used once.
FLOOD, GOOD, MORE = 1500, 20, 96 * MIB
NAMES = ("r", "", "x", "é" * 80, "\x00\n\x1b[2J", "x" * 5000, "../../etc/passwd", "r ", "R", "%s{}")
EDGES = (0, 1, -1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def table(dice: Random) -> dict[str, wire.WireTable]:
    """Tables of any group, kind and length, of ids at the edges of int64."""
    names, kinds = ("kv", "state", "", "x" * 300), ("blocks", "slot", "ring", "", "file")
    ids = np.array([dice.choice(EDGES[:6] + EDGES[8:]) for _ in range(dice.choice((0, 1, 4, 900)))], np.int64)
    raw = ids.tobytes()[: dice.choice((None, None, 3))]
    return {dice.choice(names): wire.WireTable(dice.choice(kinds), dice.choice(EDGES), raw) for _ in range(2)}


def want(dice: Random, name: str) -> wire.WriteRequest:
    tokens = dice.choice(EDGES), dice.choice(EDGES)
    return wire.WriteRequest(name, tokens, {dice.choice(("context", "")): tokens}, table(dice), table(dice))


def done(dice: Random, name: str) -> wire.Done:
    sums = tuple(("kv", dice.choice(EDGES), dice.choice(EDGES)) for _ in range(dice.choice((0, 2, 50))))
    sample = dice.choice((None, (dice.choice(EDGES), dice.choice(EDGES))))
    asked = want(dice, name) if dice.random() < 0.5 else None
    return wire.Done(name, dice.choice(EDGES), dice.choice(EDGES), sums, sample, asked)


def hello(dice: Random, name: str) -> Any:
    """A hello from any engine but the good one. Its name may be another engine's, because names are no secrets."""
    change = {
        "name": f"evil {name}"[:200],
        "run": dice.choice(("a", "b", "", name[:200])),
        "worker": dice.choice(EDGES),
    }
    return replace(control.HELLO, want=dice.choice(("worker", "engine", "")), nonce=dice.randbytes(16), **change)


KINDS: dict[str, Callable[[Random, str], Any]] = {
    "hellos": hello,
    "claims": lambda dice, name: wire.Claim(dice.choice(EDGES), (name,) * dice.choice((0, 1, 40)), (name,)),
    "wants": want,
    "dones": done,
    "leaves": lambda dice, name: wire.Leave(name),
    "all": lambda dice, name: KINDS[dice.choice([kind for kind in KINDS if kind != "all"])](dice, name),
}


@pytest.fixture
def good(worker: Any) -> Iterator[Caller]:
    """One who is met, and claims a request that is held."""
    made = Caller(worker, "good")
    made.hello(name="good")
    worker.hold("r")
    yield made
    made.line.close()


def answered(good: Caller) -> None:
    """A good peer's claim is answered."""
    good.line.send(wire.Claim(7, ("r",)))
    patience = Patience(20)
    while patience.lasts():
        said = good.hear()
        if isinstance(said, wire.ClaimAnswers) and said.heartbeat == 7:
            assert [(type(answer), answer.request) for answer in said.answers] == [(wire.Claimed, "r")]
            return
    raise AssertionError("a good peer was not answered")


def spin(one: Any, met: Callable[[], bool]) -> None:
    """Poll a worker until `met`."""
    until(met, one.run_once, seconds=30)


def sent(caller: Caller, message: Any) -> None:
    """Say something, whatever comes back."""
    while not caller.line.send(message):
        caller.worker.run_once()
        caller.line.receive()


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_harms_nobody_else(worker: Any, caller: Caller, good: Caller, kind: str) -> None:
    dice = Random(kind)
    caller.hello(name="evil", run="evil")
    answered(good)
    gc.collect()
    before = resident(), descriptors(), threading.active_count()
    for number in range(FLOOD):
        sent(caller, KINDS[kind](dice, dice.choice(NAMES)))
        if number % 50 == 0:
            worker.run_once()
            caller.line.receive()
        if number % (FLOOD // GOOD) == 0:
            answered(good)
    answered(good)
    assert worker.released() == []
    assert resident() < before[0] + MORE
    assert descriptors() <= before[1] + 2
    assert threading.active_count() <= before[2] + 1, "one thread compares checksums"


def test_one_message_that_asks_for_too_much_ends_its_sender_alone(worker: Any, caller: Caller, good: Caller) -> None:
    """Its answer would be larger than a message may be; who is heard in the same round is answered all the same."""
    caller.hello(name="evil", run="evil")
    caller.line.send(wire.Claim(1, tuple(f"x{number}" for number in range(200_000))))
    time.sleep(0.3)
    answered(good)
    assert worker.released() == []


def test_who_takes_no_more_is_told_when_it_does(worker: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    names, full = [f"late {number}" for number in range(50)], True
    caller.hello(name="slow", run="slow")
    caller.ask(wire.Claim(1, tuple(names), tuple(names)))
    readers = worker.half.core.state.sessions
    monkeypatch.setattr(ControlServer, "behind", lambda _: [reader.identity for reader in readers] if full else [])
    for name in names:
        worker.hold(name)
    assert caller.hear(0.2) is None
    full, answers = False, list[str]()
    # The first loop waits for all answers, then for any surplus one.
    while said := caller.hear(20 if len(answers) < len(names) else 0.2):
        answers += [answer.request for answer in said.answers] if isinstance(said, wire.ClaimAnswers) else []
    assert sorted(answers) == sorted(names)


def test_who_is_dropped_is_told_nothing_more(worker: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    names, told = [f"late {number}" for number in range(50)], list[object]()
    caller.hello(name="slow", run="slow")
    caller.ask(wire.Claim(1, tuple(names), tuple(names)))

    def full(_: ControlServer, identity: bytes, message: object) -> bool:
        told.append(message)
        return False

    monkeypatch.setattr(ControlServer, "send", full)
    for name in names:
        worker.hold(name)
    worker.run_once()
    assert (len(told), len(worker.inspect().readers)) == (1, 0)


@pytest.mark.parametrize("first", EDGES[2:])
def test_blocks_where_no_context_reaches_end_in_a_refusal(
    worker: Any, caller: Caller, good: Caller, first: int
) -> None:
    caller.hello(name="evil", run="evil")
    told = {"r": {"kv": wire.WireTable("blocks", first, np.array([0, 1], "<i8").tobytes())}}
    sent(caller, wire.Claim(1, ("r",), (), told))
    answered(good)
    assert worker.released() == []


def test_a_number_that_nothing_foresaw_ends_its_sender_alone(
    worker: Any, caller: Caller, good: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unforeseen(*_: object) -> MessageKind:
        return 1 // 0  # type: ignore[return-value]

    caller.hello(name="evil", run="evil")
    monkeypatch.setattr(RequestWrites, "leave", unforeseen)
    sent(caller, wire.Leave("r"))
    spin(worker, lambda: len(worker.inspect().readers) == 1)
    answered(good)
    assert worker.released() == []


def test_a_round_of_large_messages_is_short() -> None:
    desk = ControlServer(control.BIND, Plain())
    line = ControlClient(desk.address, Plain())
    large = wire.Claim(1, ("x" * ENOUGH,))
    for _ in range(10):
        assert line.send(large)
    found = list[int]()
    while sum(found) < 10:
        desk.wait(10)
        found.append(len(desk.receive()))
        assert found[-1], "a message is lost"
    line.close()
    desk.close()
    assert max(found) == 1


BAD = {
    "beyond the pool": (0, 40),
    "far beyond": (0, 2**62),
    "the largest": (0, 2**63 - 1),
    "none": (0, -1),
    "the smallest": (0, -(2**63)),
    "a far position": (2**62, 1),
    "the largest position": (2**63 - 1, 1),
    "a negative position": (-5, 1),
}


@pytest.fixture(scope="module")
def polled_lines() -> list[ControlClient]:
    """The connection of the decode worker of `polled`, once that is made."""
    return []


@pytest.fixture(scope="module")
def polled(polled_lines: list[ControlClient]) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        lines = instances(patch, ControlClient)
        made = world(Shape(1), Shape(1), mode="push")
    # Another one was asked for the plan, and is closed.
    polled_lines += [line for line in lines if line.broken() is None]
    yield made
    made.close()


@pytest.mark.parametrize("whose", ["prefill", "decode"])
@pytest.mark.parametrize("name", BAD)
def test_blocks_that_cannot_be_are_not_moved(
    polled: World, polled_lines: list[ControlClient], whose: str, name: str
) -> None:
    """Said by hand, past all that a decode worker of ours would check."""
    request = ask(polled, (0, 8), "edges", f"{whose} {name}")
    filled(polled, request)
    polled.hold(request.id)
    first, bad = BAD[name]
    kv = wire.WireTable("blocks", first, np.array([bad, bad], "<i8").tobytes())
    good = {
        "kv": wire.WireTable("blocks", 0, np.arange(2, dtype="<i8").tobytes()),
        "state": wire.WireTable("slot", 8, bytes(8)),
    }
    sides = {"prefill": good, "decode": good, whose: {**good, "kv": kv}}
    before = {plane: array.copy() for plane, array in polled.decode_memory[0].items()}
    told = refused(polled)
    (line,) = polled_lines
    line.send(wire.Claim(1, (request.id,), (request.id,)))
    line.send(wire.WriteRequest(request.id, (0, 8), {}, sides["prefill"], sides["decode"]))
    spin(polled.decode[0], lambda: refused(polled) > told)
    assert all(np.array_equal(array, before[plane]) for plane, array in polled.decode_memory[0].items())
    polled.prefill[0].withdraw(request.id)


def refused(made: World) -> int:
    """How often the decode worker was told that a request of which it knows nothing has failed."""
    found: Any = made.decode[0].counters.snapshot()
    return int(found.get("messages", {}).get("unknown", 0))
