"""Meet a prefill engine over ZeroMQ: its engine card first, then the cards of the workers that the plan names."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kvplan.runtime.card import (
    CHECKSUM,
    LARGEST,
    MAGIC,
    EngineCard,
    Hello,
    Refusal,
    WorkerCard,
    check_engine,
    check_worker,
    seal,
    unseal,
)
from kvplan.runtime.errors import CardError, DigestError, HandshakeError
from kvplan.runtime.plan import Plan

if TYPE_CHECKING:
    import zmq

T = TypeVar("T", EngineCard, WorkerCard)
PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Met:
    """An engine and the workers of it that were met, each checked against the plan."""

    engine: EngineCard
    workers: tuple[WorkerCard, ...]


def meet(plan: Plan, worker: int, address: str, timeout: float) -> Met:
    """Meet the engine that answers at `address` for decode worker `worker`, within `timeout` seconds.

    Raises HandshakeError, CardError or DigestError, before the transport hears of the peer.
    """
    deadline = time.monotonic() + timeout
    hello = Hello("engine", plan.digest, worker)
    engine = _ask(address, hello, EngineCard, deadline)
    check_engine(engine, plan)
    return Met(engine, tuple(_worker(plan, worker, engine, source, deadline) for source in named(plan, worker)))


def named(plan: Plan, worker: int) -> tuple[int, ...]:
    """The prefill workers that a decode worker reads from or notifies."""
    return tuple(sorted({read.worker for read in plan.reads[worker]} | set(plan.notify[worker])))


def _worker(plan: Plan, worker: int, engine: EngineCard, source: int, deadline: float) -> WorkerCard:
    card = _ask(engine.addresses[source], Hello("worker", plan.digest, worker), WorkerCard, deadline)
    check_worker(card, engine, plan, source)
    return card


def _ask(address: str, hello: Hello, kind: type[T], deadline: float) -> T:
    """Ask until there is a card, a refusal that stays, or no time left."""
    while True:
        answer = unseal(_exchange(address, seal(hello), deadline), EngineCard | WorkerCard | Refusal)  # type: ignore[arg-type]
        if isinstance(answer, kind):
            return answer
        if not isinstance(answer, Refusal):
            raise CardError(f"{address} answered with another card than {hello.want}")
        if not answer.again:
            raise (DigestError if answer.code == DigestError.code else HandshakeError)(
                f"{address} refuses: {answer.message}"
            )
        if time.monotonic() + PAUSE > deadline:
            raise HandshakeError(f"{address}: {answer.message}, no change before the deadline")
        time.sleep(PAUSE)


def _exchange(address: str, message: bytes, deadline: float) -> bytes:
    import zmq

    socket: zmq.Socket[bytes]
    with zmq.Context.instance().socket(zmq.REQ) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST + len(MAGIC) + CHECKSUM)
        try:
            socket.connect(address)
            socket.send(message)
            if not socket.poll(max(0, round((deadline - time.monotonic()) * 1000))):
                raise HandshakeError(f"{address} did not answer before the deadline: is the worker running and polled?")
            return bytes(socket.recv())
        except zmq.ZMQError as error:
            raise HandshakeError(f"{address}: {error}: give the address that the worker prints") from error


class Desk:
    """The socket at which a worker answers; never blocks."""

    def __init__(self, bind: str) -> None:
        import zmq

        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4096)
        try:
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            self._socket.close()
            raise HandshakeError(f"cannot listen at {bind}: {error}") from error
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def answer(self, reply: Callable[[Hello], EngineCard | WorkerCard | Refusal]) -> None:
        """Answer everyone who has asked since the last call."""
        while self._socket.poll(0):
            peer, *rest = self._socket.recv_multipart()
            self._socket.send_multipart([peer, b"", _reply(rest[-1] if rest else b"", reply)])

    def close(self) -> None:
        self._socket.close()


def _reply(data: bytes, reply: Callable[[Hello], EngineCard | WorkerCard | Refusal]) -> bytes:
    try:
        return seal(reply(unseal(data, Hello)))
    except CardError as error:
        return seal(Refusal(error.code, str(error)))
