"""Connections are bounded before anybody has shown a key, and a message is bounded while it comes."""

from __future__ import annotations

import inspect
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import pytest
from tests.runtime.control.test_channel import descriptors
from tests.runtime.control.test_hostile_connections import GREETING, READY
from tests.runtime.control.test_hostile_peers import MIB, resident
from tests.runtime.helpers import control
from tests.runtime.helpers.waiting import until

from kvplan.runtime.control import door as doors
from kvplan.runtime.control.card import LARGEST
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.door import Door
from kvplan.runtime.control.keys import Plain

ELSEWHERE = "127.0.0.2"


@pytest.fixture
def server() -> Iterator[ControlServer]:
    made = ControlServer(control.BIND, Plain())
    yield made
    made.close()


def place(server: ControlServer) -> tuple[str, int]:
    host, port = server.address.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


@contextmanager
def connections(server: ControlServer, count: int, address: str = ELSEWHERE) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_connected(server, address)) for _ in range(count)]


def _connected(server: ControlServer, address: str) -> socket.socket:
    made = socket.create_connection(place(server), 20, source_address=(address, 0))
    made.setblocking(False)
    return made


def let_in(server: ControlServer) -> socket.socket:
    """A connection whose handshake is over."""
    made = socket.create_connection(place(server), 20)
    with made.makefile("rb") as answers:
        made.sendall(GREETING)
        assert len(answers.read(len(GREETING))) == len(GREETING)
        made.sendall(READY)
        assert answers.read(1)
    return made


def ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def looked(server: ControlServer, true: Any) -> None:
    until(lambda: server.receive() is not None and true())


def answered(server: ControlServer) -> None:
    client = ControlClient(server.address, Plain())
    client.send(control.HELLO)
    until(lambda: server.receive() != [])
    client.close()


@pytest.mark.parametrize("limit", ["YOUNG_OF_ADDRESS", "OPEN_OF_ADDRESS"])
def test_an_address_has_so_many_connections_and_others_are_answered(
    server: ControlServer, limit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(doors, limit, 5)
    with caplog.at_level(logging.WARNING, "kvplan"), connections(server, 12) as made:
        looked(server, lambda: sum(map(ended, made)) == 7)
        assert len(server._door) == 5
        answered(server)
    assert sum("connection refused" in record.getMessage() for record in caplog.records) == 1
    looked(server, lambda: len(server._door) <= 1)
    with connections(server, 5) as made:
        looked(server, lambda: len(server._door) >= 5)
        assert not any(map(ended, made))


@pytest.mark.parametrize("limit", ["YOUNG", "OPEN"])
def test_all_addresses_together_have_so_many(
    server: ControlServer, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, limit, 5)
    with connections(server, 4) as some, connections(server, 4, "127.0.0.3") as others:
        looked(server, lambda: sum(map(ended, [*some, *others])) == 3)


def test_who_had_time_for_a_handshake_counts_as_one_who_is_in(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "YOUNG_OF_ADDRESS", 3)
    time = [0.0]
    server._door = Door(server.address, 5.0, lambda: time[0])
    with connections(server, 3) as first:
        looked(server, lambda: len(server._door) == 3)
        time[0] += 6
        with connections(server, 3) as second:
            looked(server, lambda: len(server._door) == 6)
            assert not any(map(ended, [*first, *second]))


def test_a_message_that_does_not_end_is_bounded_while_it_comes(
    server: ControlServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Every part of it is small, and libzmq keeps them all until the last one is there."""
    part = b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)
    before, said = resident(), 0
    with let_in(server) as endless:
        endless.setblocking(False)
        looked(server, lambda: len(server._door) == 1)
        rest = memoryview(b"")
        while len(server._door):
            server.receive()
            rest = rest or memoryview(part)
            try:
                count = endless.send(rest)
            except BlockingIOError:
                continue
            except OSError:
                break
            rest, said = rest[count:], said + count
            assert said < 1024 * MIB, "it goes on and on"
        assert resident() < before + 512 * MIB
    assert said > LARGEST
    assert "a message of more than" in caplog.text
    answered(server)


def test_the_largest_message_may_come_slowly(server: ControlServer) -> None:
    """What comes in between no two messages is the one that is on its way, and it is heard."""
    frame = b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)
    last = b"\x02" + struct.pack(">Q", 60_000) + bytes(60_000)
    with let_in(server) as slow:
        for _ in range(3):
            for _ in range(LARGEST // 60_000 - 1):
                slow.sendall(frame)
                server._door._looked = -1.0
                assert server.receive() == []
            slow.sendall(last)
            until(lambda: server.receive() != [])


def test_a_descriptor_that_is_no_connection_s_by_now_is_left_alone(server: ControlServer) -> None:
    reader, writer = os.pipe()
    before = descriptors()
    server._door.accepted(reader)
    assert (len(server._door), descriptors()) == (0, before)
    os.close(reader)
    os.close(writer)
    server._door.accepted(reader)
    assert len(server._door) == 0


def test_a_descriptor_that_is_another_connection_s_by_now_is_left_alone(server: ControlServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()) as mine:
        mine.setblocking(False)
        server._door.accepted(mine.fileno())
        assert len(server._door) == 0
        server._door._open[mine.fileno()] = doors.OpenConnection(("somewhere", "else"), "", -3 * LARGEST)
        server._door._looked = -1.0
        server._door.weigh()
        assert not ended(mine)
        server._door._open.clear()


def test_a_handler_of_a_signal_that_raises_closes_no_connection(server: ControlServer) -> None:
    """libzmq has the descriptor: who closes it by number ends the process, or takes what has the number by then."""
    lines = range(1, 1 + len(inspect.getsourcelines(doors._received)[0]))
    with let_in(server) as mine:
        came = doors._received(mine.fileno())
        assert came > 0
        for line in lines:
            interrupted(line, lambda: doors._received(mine.fileno()))
            assert doors._received(mine.fileno()) == came


def interrupted(line: int, call: Callable[[], object]) -> None:
    """`call`, ended by a KeyboardInterrupt before this line of `_received`, if it comes there."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not doors._received.__code__:
            return None
        if event == "line" and frame.f_lineno - frame.f_code.co_firstlineno == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return
    finally:
        sys.settrace(before)


def test_bytes_are_not_counted_where_the_system_does_not(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As macOS, whose Python has no TCP_INFO."""
    monkeypatch.setattr(doors, "_TCP_INFO", None)
    with let_in(server) as mine:
        assert doors._received(mine.fileno()) == 0
    answered(server)
