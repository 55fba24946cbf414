"""The simulation's sockets, threads and network card: ordered, late, cut, and all in one thread."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.runtime import InMemory
from kvplan.runtime.control.card import encode, unseal
from kvplan.runtime.control.messages import ToDecode, ToPrefill
from kvplan.runtime.control.outbox import LineState, Outbox
from kvplan.runtime.errors import CardError, NotBegunError, PeerLostError, TransportError
from kvplan.runtime.transport.base import HandleState
from kvplan.runtime.transport.inmemory import CopyTransfer, Hub

STEP = 0.002
# The tag of a hello, as msgpack has it.
HELLO = b"\xa5hello"


@dataclass(eq=False)
class Pipe:
    """One direction of a connection: messages keep their order, each with its time of arrival."""

    net: Net
    queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    last: float = 0.0

    def put(self, data: bytes, twice: bool) -> None:
        draw = self.net.draw
        late = draw.choice((0, 0, STEP, 5 * STEP, 20 * STEP)) * draw.random() * self.net.slow
        self.last = max(self.last, self.net.time + late)
        self.queue.extend([(self.last, data)] * (1 + twice))

    def give(self, data: bytes) -> LineState:
        """Send a message, where there is room."""
        if self.net.draw.random() < self.net.full:
            return LineState.FULL
        self.put(data, self.net.twice(data))
        return LineState.TAKEN

    def take(self) -> list[bytes]:
        found = []
        while self.queue and self.queue[0][0] <= self.net.time:
            found.append(self.queue.popleft()[1])
        return found

    def lose(self) -> None:
        """A cut: some of the last messages never come."""
        for _ in range(self.net.draw.randint(0, len(self.queue))):
            self.queue.pop()


@dataclass(eq=False)
class Net:
    """The time, the random draws, and all connections. `turn` runs everybody else while one waits."""

    draw: random.Random
    time: float = 1000.0
    slow: float = 1.0
    duplicates: float = 0.0
    desks: dict[str, Desk] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    tasks: list[Callable[[], None]] = field(default_factory=list)
    transfers: list[Late] = field(default_factory=list)
    turn: Callable[[], object] = lambda: None
    fail: float = 0.0
    full: float = 0.0

    def now(self) -> float:
        return self.time

    def twice(self, data: bytes) -> bool:
        """Whether a message comes twice, which no hello does."""
        return HELLO not in data and self.draw.random() < self.duplicates

    def sleep(self, seconds: float = STEP) -> None:
        self.time += min(seconds, STEP)
        self.turn()


class Desk:
    def __init__(self, net: Net, bind: str, keys: object) -> None:
        self.net, self.address = net, f"tcp://127.0.0.1:{len(net.desks) + 1}"
        self.closed, self.guests = False, dict[bytes, Line]()
        net.desks[self.address] = self

    def receive(self, most: int = 256) -> list[tuple[bytes, Any]]:
        self.flush()
        found = [[(name, one) for one in line.up.take()] for name, line in self.guests.items()]
        mixed, left = [], [one for one in found if one and not self.closed]
        while left:
            one = self.net.draw.choice(left)
            mixed.append(one.pop(0))
            left = [one for one in left if one]
        return [(name, message) for name, data in mixed for message in opened(data, ToPrefill)]

    def send(self, identity: bytes, message: Any) -> bool:
        line, data = self.guests.get(identity), encode(message)
        return not self.closed and line is not None and line.answers.put(data)

    def gather(self) -> None:
        """Always: what is sent is said by `flush`."""

    def flush(self) -> list[bytes]:
        return [name for name, line in self.guests.items() if len(line.answers) and not line.answers.flush()]

    def meet(self, identity: bytes, hello: Any) -> None:
        """Engines of the simulation do one thing each."""

    doubts = False

    @property
    def lines(self) -> Desk:
        """The interface that both halves may use: nothing is shared."""
        return self

    def connections(self) -> tuple[()]:
        return ()

    def pending(self) -> bool:
        """Never: `receive` takes all that came."""
        return False

    def behind(self) -> list[bytes]:
        return [identity for identity, line in self.guests.items() if line.answers.full]

    def forget(self, identity: bytes) -> None:
        line = self.guests[identity]
        line.answers = Outbox(line.tell)

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        self.closed = True
        for line in self.guests.values():
            line.cut()


class Line:
    def __init__(self, net: Net, address: str, keys: object, server_key: bytes | None = None) -> None:
        self.net, self.address, self.gone, self.closed = net, address, False, False
        self.up, self.down = Pipe(net), Pipe(net)
        self.words, self.answers = Outbox(self.up.give), Outbox(self.tell)
        self.gathers = False
        self.desk = net.desks[address]
        self.gone = self.desk.closed
        self.desk.guests[len(net.lines).to_bytes(4, "big")] = self
        net.lines.append(self)

    def send(self, message: Any) -> bool:
        data = encode(message)
        return not self.gone and self.words.put(data) and (self.gathers or self.words.flush())

    def gather(self) -> None:
        self.gathers = True

    def flush(self) -> None:
        self.words.flush()

    @property
    def behind(self) -> bool:
        return self.words.full

    def tell(self, data: bytes) -> LineState:
        return LineState.GONE if self.gone else self.down.give(data)

    def say(self, message: Any) -> None:
        if not self.send(message):
            raise PeerLostError("its line is broken, or has been full for long: is it polled?")

    def receive(self, most: int = 256) -> list[Any]:
        self.flush()
        return [] if self.closed else [message for data in self.down.take() for message in opened(data, ToDecode)]

    def filenos(self) -> list[int]:
        return []

    def wait(self, seconds: float) -> None:
        self.net.sleep()

    def broken(self) -> PeerLostError | None:
        return PeerLostError("the line is cut") if self.gone else None

    @property
    def error(self) -> PeerLostError | None:
        return self.broken()

    def cut(self) -> None:
        if not self.gone:
            self.gone = True
            self.up.lose()
            self.down.lose()

    def close(self) -> None:
        self.closed = True
        self.cut()

    leave = close


def opened(data: bytes, kind: Any) -> list[Any]:
    try:
        return unseal(data, kind)
    except CardError as error:
        return [error]


class Executor:
    """An executor that runs its calls when the simulation says so."""

    def __init__(self, net: Net, *_: object) -> None:
        self.net, self.futures = net, list[Future[Any]]()

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call(*arguments))
            except Exception as error:
                future.set_exception(error)

        self.net.tasks.append(run)
        self.futures.append(future)
        return future

    def shutdown(self, *, cancel_futures: bool = False, **_: Any) -> None:
        for future in self.futures if cancel_futures else ():
            future.cancel()


class Late(CopyTransfer):
    """A transfer that moves a few rows at a time, and may fail on its way."""

    agent: Transport
    at = 0
    harm = ""

    def poll(self) -> bool:
        net, draw = self.agent.net, self.agent.net.draw
        if self.state is HandleState.POSTED and self.harm and draw.random() < 0.3:
            harm, self.harm = self.harm, ""
            if harm == "lost":
                self.state = HandleState.FAILED
                raise PeerLostError("the connection is reset")
            raise TransportError("something failed, and bytes may still move")
        if self.state is HandleState.POSTED and draw.random() < 0.4 and net.slow:
            return False
        return super().poll() and self.state is HandleState.DONE

    def _move(self) -> None:
        import ctypes

        few = self.at + (self.agent.net.draw.randint(1, 8) if self.agent.net.slow else len(self.source))
        for row in range(self.at, min(few, len(self.source))):
            ctypes.memmove(int(self.target[row, 0]), int(self.source[row, 0]), int(self.target[row, 1]))
        self.at = few
        if self.at >= len(self.source):
            self.state = HandleState.DONE

    @property
    def moving(self) -> bool:
        """Whether a byte of it may still move."""
        return self.state is HandleState.POSTED


class Transport(InMemory):
    """A late InMemory transport; `net.transfers` has the transfers in progress."""

    def __init__(self, net: Net, hub: Hub, name: str) -> None:
        self.net = net
        super().__init__(hub, name)

    def post(self, op: Any, peer: str, *lists: Any) -> Late:
        self._refuse()
        return self._late(peer, super().post(op, peer, *lists))

    def post_spans(self, op: Any, peer: str, *spans: Any) -> Late:
        self._refuse()
        return self._late(peer, super().post_spans(op, peer, *spans))

    def _refuse(self) -> None:
        if self.net.draw.random() < self.net.fail:
            raise NotBegunError("the queue is full")

    def _late(self, peer: str, made: CopyTransfer) -> Late:
        late = Late(self, peer, made.source, made.target)
        if self.net.draw.random() < self.net.fail:
            late.harm = self.net.draw.choice(("lost", "odd"))
        self._given.discard(made)
        self._given.add(late)
        self.net.transfers = [one for one in self.net.transfers if one.moving]
        self.net.transfers.append(late)
        return late


def speak(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are made from now on speak through a simulation."""

    def through(kind: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **_: kind(net, *arguments)

    monkeypatch.setattr("kvplan.runtime.endpoint.ControlServer", through(Desk))
    monkeypatch.setattr("kvplan.runtime.control.handshake.ControlClient", through(Line))
    monkeypatch.setattr("kvplan.runtime.control.handshake.time", SimpleNamespace(sleep=net.sleep))
    monkeypatch.setattr("kvplan.runtime.checksum.background.ThreadPoolExecutor", through(Executor))
    monkeypatch.setattr("kvplan.runtime.staging.buffers.copy_threads", through(Executor))
    monkeypatch.setattr("kvplan.runtime.staging.staged.AT_ONCE", net.draw.choice((0, 100, 1000)))
