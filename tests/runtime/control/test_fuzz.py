"""100,000 fuzzed messages of a peer, and garbage on a live port, end in named errors."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq
from tests.runtime.control.test_card import ENGINE, WORKER
from tests.runtime.control.test_channel import descriptors, talk, until
from tests.runtime.helpers.control import BIND, HELLO, OWN, PLAN, changed, lie, local, pair, unsealed

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import (
    MAGIC,
    EngineCard,
    Hello,
    Refusal,
    WorkerCard,
    checksum,
    geometry,
    seal,
)
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.handshake_server import answer_hello
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.errors import CardError
from kvplan.runtime.memory.geometry import check

CASES, SOCKETS = 100_000, 2_000
TABLE = {"kv": wire.WireTable("blocks", 0, bytes(16))}
SENT = (
    HELLO,
    changed(HELLO, want="engine", plan=""),
    changed(HELLO, card=changed(OWN, nonce=HELLO.nonce)),
    wire.Claim(1, ("a", "b")),
    wire.WriteRequest("a", (0, 9), {"context": (0, 9)}, TABLE, TABLE),
    wire.Done("a", 1, 2, (("kv", 0, 7),), (4, 9)),
    wire.Leave("a"),
    ENGINE,
    WORKER,
    wire.ClaimAnswers(
        1, 30.0, (wire.Claimed("a", 7), wire.NotYet("c"), wire.Lost("b", wire.LossReason.EXPIRED, "why"))
    ),
    wire.Offer("a", 1, 0, (0, 9), (1, 2), TABLE, True),
)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 62, (1 << 64) - 1, -(1 << 63), 1e300, float("nan"), "", "x" * 300, b"", bytes(70),
    [], [0] * 9, {}, {"a": 1}, [[1, 2, 3]], [[]], "engine", "worker", "hello",
)  # fmt: skip


def wrapped(body: bytes) -> bytes:
    return MAGIC + checksum(body) + body


def cases(count: int, seed: int) -> Iterator[bytes]:
    """Good messages with a bit, a piece, a field or a number changed and the checksum made right, and garbage."""
    chance = random.Random(seed)
    bodies = [msgspec.msgpack.encode(one) for one in SENT]
    fields = [msgspec.msgpack.decode(body) for body in bodies]
    ways = (lambda: bits(chance, chance.choice(bodies)), lambda: piece(chance, bodies), lambda: field(chance, fields))
    for number in range(count):
        if number % 10 == 0:
            yield chance.randbytes(chance.randrange(200))
        elif number % 10 == 1:
            yield seal(chance.choice(SENT))[: chance.randrange(100)]
        else:
            yield wrapped(chance.choice(ways)())


def bits(chance: random.Random, body: bytes) -> bytes:
    found = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def piece(chance: random.Random, bodies: list[bytes]) -> bytes:
    one, other = chance.choice(bodies), chance.choice(bodies)
    return one[: chance.randrange(len(one))] + other[chance.randrange(len(other)) :]


def field(chance: random.Random, fields: list[dict]) -> bytes:
    found = dict(chance.choice(fields))
    name = chance.choice(sorted(found))
    value = found[name]
    if isinstance(value, dict) and value and chance.random() < 0.8:
        value = {**value, chance.choice(sorted(value)): chance.choice(ODD)}
    elif isinstance(value, list) and value and chance.random() < 0.8:
        value = [*value[:-1], chance.choice(ODD)]
    else:
        value = chance.choice(ODD)
    return msgspec.msgpack.encode({**found, name: value})


def outcome(data: bytes) -> str:
    """The name of the message or answer that a receiver makes of `data`. Raises any error that is no card error."""
    try:
        value = unsealed(data, wire.ToPrefill | wire.ToDecode)
    except CardError:
        return "refused card"
    if isinstance(value, Hello):
        answer = answer_hello(value, ME)
        assert isinstance(answer, EngineCard | WorkerCard | Refusal)
        return type(answer).__name__
    return type(value).__name__ if not isinstance(value, WorkerCard) else lies(value)


def lies(card: WorkerCard) -> str:
    try:
        check(geometry(card), PLAN.prefill, 0)
    except KvplanError as error:
        return error.code
    return "WorkerCard"


ME = local(addresses=("tcp://a:1",) * 2)


def test_a_hundred_thousand_fuzzed_messages() -> None:
    found = Counter(outcome(data) for data in cases(CASES, 5))
    assert found.total() == CASES
    # Each layer was reached: seal, types, greeting, geometry; and some changes do no harm.
    assert all(found[name] > 100 for name in ("refused card", "Refusal", "EngineCard", "WorkerCard", "Claim", "R011"))


def test_what_is_served_to_a_fuzzed_hello_is_what_a_good_one_gets() -> None:
    """A changed hello gets the very card of a good one, but for the nonce, or none."""
    good = answer_hello(HELLO, ME)
    for data in cases(20_000, 6):
        try:
            hello = unsealed(data, Hello)
        except CardError:
            continue
        answer = answer_hello(hello, ME)
        if isinstance(answer, WorkerCard):
            assert answer == changed(good, nonce=hello.nonce)
            assert (hello.plan, hello.side, hello.worker) == (HELLO.plan, HELLO.side, 0)


def garbage(chance: random.Random) -> bytes:
    """Bytes for a port, some of which begin as ZeroMQ does."""
    greeting = (
        b"\xff" + bytes(8) + b"\x7f\x03\x00" + chance.choice((b"NULL", b"CURVE", b"PLAIN")).ljust(20, b"\0") + bytes(32)
    )
    start = (b"", greeting[: chance.randrange(65)], greeting, b"\x01\x00", b"\xff" + b"\xff" * 8 + b"\x7f")
    return chance.choice(start) + chance.randbytes(chance.randrange(300))


def throw(address: str, chance: random.Random) -> None:
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as raw:
        try:
            raw.sendall(garbage(chance))
        except OSError:
            return


@pytest.mark.parametrize("secure", [False, True])
def test_a_live_desk_survives_garbage(secure: bool) -> None:
    one, other = pair() if secure else (Plain(), Plain())
    desk, chance = ControlServer(BIND, one), random.Random(7)
    line = ControlClient(desk.address, other)
    talk(desk, line)
    before = descriptors(), threading.active_count()
    for number in range(SOCKETS):
        throw(desk.address, chance)
        if number % 50 == 0:
            assert all(isinstance(message, CardError) for _, message in desk.receive())
            talk(desk, line)
    fresh = ControlClient(desk.address, other)
    talk(desk, fresh)
    fresh.close()
    until(time.sleep, lambda: descriptors() <= before[0])
    # Threads of tests before it may end meanwhile.
    assert threading.active_count() <= before[1]
    talk(desk, line)
    line.close()
    desk.close()


@pytest.mark.parametrize("secure", [False, True])
def test_a_live_desk_survives_garbage_in_frames(secure: bool) -> None:
    """Thousands of fuzzed messages and odd framings from one that is let in."""
    one, other = pair() if secure else (Plain(), Plain())
    desk, chance = ControlServer(BIND, one), random.Random(8)
    line = ControlClient(desk.address, other)
    talk(desk, line)
    before = descriptors(), threading.active_count()
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        if isinstance(one, Keys) and isinstance(other, Keys):
            raw.curve_serverkey, raw.curve_publickey, raw.curve_secretkey = one.public, other.public, other.secret
        raw.connect(desk.address)
        found = 0
        for number, data in enumerate(cases(3_000, 9)):
            raw.send_multipart([data] if number % 3 else [b""] * chance.randrange(1, 4) + [data, b"x"])
            found += drain(desk) if number % 100 == 0 else 0
        while found < 3_000:
            desk.wait(5)
            found += drain(desk)
        talk(desk, line)
    until(time.sleep, lambda: descriptors() <= before[0])
    # Threads of tests before it may end meanwhile.
    assert threading.active_count() <= before[1]
    line.close()
    desk.close()


def drain(desk: ControlServer) -> int:
    """Answer what there is, as a worker would."""
    messages = desk.receive()
    for identity, message in messages:
        if isinstance(message, Hello):
            desk.send(identity, answer_hello(message, ME))
        assert isinstance(message, CardError | msgspec.Struct)
    return len(messages)


def test_a_geometry_that_lies_right_is_the_one_that_is_served() -> None:
    check(lie(PLAN.prefill, 0), PLAN.prefill, 0)
    assert outcome(seal(WORKER)) == "WorkerCard"
