"""Hostile clients at a port: thousands of connections, half of a handshake, one that never reads."""

from __future__ import annotations

import itertools
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import zmq
from msgspec.structs import replace
from tests.paths import ROOT
from tests.runtime.control.test_channel import descriptors
from tests.runtime.control.test_hostile_peers import MIB, answered, good, resident, spin
from tests.runtime.helpers import control
from tests.runtime.helpers.callers import ONE, Caller
from tests.slowness import Patience

from kvplan.runtime import errors
from kvplan.runtime.control.card import seal
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.keys import Plain
from kvplan.runtime.control.messages import Claim
from kvplan.runtime.control.outbox import LineState
from kvplan.runtime.control.sockets import sent

__all__ = ["good"]


@contextmanager
def connections(address: str, count: int, says: bytes) -> Iterator[int]:
    """Open many connections from another process, keep them open, and return their number."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    program = [sys.executable, "-c", CROWD, host, port, str(count), says.hex()]
    process = subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait(20)
        process.stdin.close()
        process.stdout.close()


CROWD = """
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for _ in range(int(sys.argv[3])):
    try:
        one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5, ("127.0.0.2", 0))
        one.sendall(bytes.fromhex(sys.argv[4]))
        held.append(one)
    except OSError:
        break
print(len(held), flush=True)
sys.stdin.read()
"""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


@pytest.mark.parametrize("says", [b"", GREETING[:12], GREETING, GREETING + READY], ids=["nothing", "half", "all", "in"])
def test_thousands_of_connections(worker: Any, good: Caller, says: bytes) -> None:
    answered(good)
    before = resident(), descriptors(), threading.active_count()
    with connections(worker.address, CROWDED, says) as made:
        assert made == CROWDED
        for _ in range(5):
            answered(good)
        fresh = Caller(worker, "fresh")
        assert fresh.hello(name="fresh") is not None
        fresh.line.close()
        assert resident() < before[0] + CROWDED * 64 * 1024
        assert threading.active_count() == before[2]
    spin(worker, lambda: descriptors() <= before[1] + 2)
    answered(good)


CROWDED = 10_000 if "SOAK_S" in os.environ else 1_000


@pytest.mark.parametrize("says", [b"", GREETING[:12]])
def test_a_connection_that_never_finishes_its_handshake_is_ended(says: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.control.sockets.HANDSHAKE", 300)
    desk = ControlServer(control.BIND, Plain())
    host, port = desk.address.removeprefix("tcp://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as one, ExitStack() as stack:
        stack.callback(desk.close)
        one.sendall(says)
        one.settimeout(20)
        while one.recv(1000):
            pass


def test_one_who_never_reads_is_dropped_and_the_others_are_answered(
    worker: Any, good: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers fill bounded queues, which are smaller here than usual, and then it is dropped."""
    monkeypatch.setattr("kvplan.runtime.control.outbox.MOST_BYTES", 16 * MIB)
    hello = replace(control.HELLO, name="deaf", run="deaf", card=None, side=ONE.decode.digest, plan=ONE.digest)
    with zmq.Context() as context, context.socket(zmq.DEALER) as deaf:
        deaf.linger = 0
        deaf.rcvhwm, deaf.rcvbuf = 1, 4096
        deaf.connect(worker.address)
        deaf.send(seal(hello))
        spin(worker, lambda: len(worker.inspect().readers) == 2)
        before, large = resident(), seal(Claim(1, tuple(f"{number:060}" for number in range(3000))))
        patience, rounds = Patience(60), itertools.count()
        while len(worker.inspect().readers) == 2:
            assert patience.lasts(), "it is still there"
            if sent(deaf, [], large) is LineState.FULL:
                worker.run_once()
            if next(rounds) % 200 == 0:
                answered(good)
        assert resident() < before + 512 * MIB
    answered(good)


def many(address: str) -> None:
    with ExitStack() as lines:
        for _ in range(30):
            lines.callback(ControlClient(address, Plain()).close)


def test_without_descriptors_the_known_are_answered_and_the_new_get_a_named_error(worker: Any, good: Caller) -> None:
    answered(good)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 30, before[1]))
        with connections(worker.address, 200, b""):
            answered(good)
            with pytest.raises(errors.HandshakeError, match="open files"):
                many(worker.address)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    answered(good)
