"""Handshake, decode's end: first the card of the prefill engine, then the cards of the workers that the plan names."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from kvplan.plan.errors import KvplanError, PlanPendingError
from kvplan.plan.types import Plan, Side
from kvplan.runtime.control.addresses import is_everywhere
from kvplan.runtime.control.card import NONCE, PROTOCOL, EngineCard, Hello, Refusal, WorkerCard, geometry
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake_server import check_card, check_like, check_plan, contacts
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.control.lines import LinePeer, PrefillLine
from kvplan.runtime.errors import BY_CODE, CardError, HandshakeError, ReplayError
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import PlanSource

T = TypeVar("T", EngineCard, WorkerCard)
PAUSE = 0.02
# The longest single wait in seconds, so that a caller's own clock is checked between waits.
SLICE = 0.1
# Seconds to wait for a card over a borrowed line. A live peer is quicker; otherwise a new line gives the reason.
PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class BorrowedLine:
    """A `line` that the prefill half uses, lent to a handshake on any thread until `close`.

    `carry_out` has the owner call the line. `pause` waits until a message has come.
    """

    line: PrefillLine
    carry_out: Callable[[Callable[[], Any]], Any]
    pause: Callable[[float, Callable[[], bool]], None]
    asked: set[bytes] = field(default_factory=set)

    @property
    def address(self) -> str:
        return self.line.address

    def send(self, message: msgspec.Struct) -> bool:
        if isinstance(message, Hello):
            self.asked.add(message.nonce)
        return bool(self.carry_out(lambda: self._sent(message)))

    def receive(self, most: int) -> list[Any]:
        """Return cards, refusals and errors. Other messages belong to an earlier user of the line, and are dropped."""
        heard, asked = self.carry_out(lambda: self.line.receive(most)), {*self.asked, b""}
        return [one for one in heard if isinstance(one, CardError) or getattr(one, "nonce", None) in asked]

    def broken(self) -> KvplanError | None:
        error: KvplanError | None = self.carry_out(self.line.broken)
        return error

    def wait(self, seconds: float) -> None:
        self.pause(seconds, lambda: len(self.line.unread) > 0)

    def close(self) -> None:
        """Return the line to its owner."""
        self.carry_out(self.line.leave)

    def _sent(self, message: msgspec.Struct) -> bool:
        listens = self.line.send(message)
        self.line.flush()
        return listens


AskingLine = PrefillLine | BorrowedLine


@dataclass(frozen=True, slots=True)
class MetEngine:
    """An engine, the plan, and for each worker that the plan names its checked card and a line to it."""

    engine: EngineCard
    plan: Plan
    workers: tuple[tuple[WorkerCard, PrefillLine], ...]

    def close(self) -> None:
        """Leave all lines."""
        for _, control in self.workers:
            control.leave()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A decode worker that introduces itself. It has `seconds_left()` for that, which may grow.

    `answers` are the addresses of its own engine if that also prefills. `borrow` returns a line in use to a peer that
    is wanted, if there is one. `card_for` returns its own card if the pair pushes. The identity's model digest is empty
    if only the plan names the model.
    """

    identity: Identity
    side: Side
    worker: int
    plans: PlanSource
    keys: Keys | Plain
    server_key: bytes | None
    card_for: Callable[[Plan], WorkerCard | None]
    seconds_left: Callable[[], float]
    answers: tuple[str, ...] = ()
    borrow: Callable[[Callable[[LinePeer], bool]], BorrowedLine | None] = lambda wanted: None

    def patient(self, seconds: float) -> Caller:
        """Return this caller with at most `seconds` left."""
        until = time.monotonic() + seconds
        return replace(self, seconds_left=lambda: min(self.seconds_left(), until - time.monotonic()))

    def control(self, address: str) -> ControlClient:
        return ControlClient(address, self.keys, self.server_key)

    def hello(self, want: str, plan: Plan | None = None, card: WorkerCard | None = None) -> Hello:
        """Return a question with a new nonce."""
        nonce, identity = os.urandom(NONCE), self.identity
        return Hello(
            want=want,
            nonce=nonce,
            name=identity.name,
            run=identity.run,
            worker=self.worker,
            model_digest=plan.model_digest if plan else identity.model_digest,
            revision=identity.revision,
            scales=identity.scales,
            side=self.side.digest,
            key=self.side.key,
            plan=plan.digest if plan else "",
            card=None if card is None else msgspec.structs.replace(card, nonce=nonce),
            protocol=PROTOCOL,
            answers=self.answers,
            settings=dict(identity.settings),
        )


def meet(caller: Caller, address: str) -> MetEngine:
    """Meet the engine that answers at `address`. The caller closes the lines, on the thread that uses them.

    If the prefill half here already uses a line to a worker, this handshake shares it. Otherwise it makes one.

    Raises HandshakeError, OwnCardError, UnlikeError, StalePeerError, CardError, ProtocolError, ReplayError, KeysError,
    DigestError, PlanMissingError, PeerLostError, RegisterError, AddressError, and the error of a refusal. No line is
    open then.
    """
    if not math.isfinite(seconds := caller.seconds_left()):
        raise HandshakeError(f"a deadline in {seconds} s is none: give seconds")
    engine = _engine_card(caller, address)
    check_like(caller.identity, engine, f"prefill engine {engine.name!r}")
    plan = _find_plan(caller, engine)
    _check_plan(plan, engine, caller)
    card = caller.card_for(plan)
    with ExitStack() as stack:
        workers = [
            _worker(caller, engine, plan, worker, address, card, stack) for worker in contacts(plan, caller.worker)
        ]
        stack.pop_all()
    return MetEngine(engine, plan, tuple(workers))


def _engine_card(caller: Caller, address: str) -> EngineCard:
    def ask(caller: Caller, line: AskingLine) -> EngineCard:
        return _ask(caller, line, lambda: caller.hello("engine"), EngineCard)

    with ExitStack() as stack:
        return _ask_at(caller, address, lambda peer: address in peer.answers, ask, stack)[0]


def _worker(
    caller: Caller,
    engine: EngineCard,
    plan: Plan,
    worker: int,
    asked: str,
    card: WorkerCard | None,
    stack: ExitStack,
) -> tuple[WorkerCard, PrefillLine]:
    """Return a worker's card and the line to it, which `stack` closes."""

    def ask(caller: Caller, line: AskingLine) -> WorkerCard:
        return _worker_card(caller, line, engine, plan, worker, card)

    address, this = _reachable(engine, worker, asked), (engine.run, worker)
    return _ask_at(caller, address, lambda peer: (peer.run, peer.worker) == this, ask, stack)


def _ask_at(
    caller: Caller,
    address: str,
    wanted: Callable[[LinePeer], bool],
    ask: Callable[[Caller, AskingLine], T],
    stack: ExitStack,
) -> tuple[T, PrefillLine]:
    """Return a card and the line that it came over, which `stack` closes or returns to its owner.

    If the prefill half uses a line to a `wanted` peer, this asks over it first. If no card comes within PATIENCE, a new
    line to the address gives the card or the reason.
    """
    if (line := caller.borrow(wanted)) is not None:
        with ExitStack() as kept:
            kept.callback(line.close)
            try:
                card = ask(caller.patient(PATIENCE), line)
            except KvplanError as error:
                logs.event(logs.INFO, "line not used", address=line.address, error=error)
            else:
                stack.enter_context(kept.pop_all())
                return card, line.line
    control = stack.enter_context(closing(caller.control(address)))
    return ask(caller, control), control


def _find_plan(caller: Caller, engine: EngineCard) -> Plan:
    """Return the plan for the pair, and wait for one that is being compiled. Raises as `PlanSource.find`."""
    sides = (engine.side, engine.key), (caller.side.digest, caller.side.key)
    while True:
        try:
            return caller.plans.find(engine.model, engine.model_digest, *sides)
        except PlanPendingError:
            if caller.seconds_left() < PAUSE:
                raise
            time.sleep(PAUSE)


def _check_plan(plan: Plan, engine: EngineCard, caller: Caller) -> None:
    check_plan(plan, engine.model_digest, engine.side, caller.side.digest, caller.worker)
    if len(engine.addresses) != len(plan.prefill.workers):
        both = f"{len(engine.addresses)} addresses, the plan {len(plan.prefill.workers)} workers"
        raise CardError(f"prefill engine {engine.name!r} has {both}: announce all workers")


def _reachable(engine: EngineCard, worker: int, asked: str) -> str:
    """Return the announced address of a worker. Raises HandshakeError for a wildcard, or another transport."""
    address = engine.addresses[worker]
    if address.partition("://")[0] != asked.partition("://")[0] or is_everywhere(address):
        raise HandshakeError(f"worker {worker} is announced at {address!r}: announce where decode workers reach it")
    return address


def _worker_card(
    caller: Caller, control: AskingLine, engine: EngineCard, plan: Plan, worker: int, own: WorkerCard | None
) -> WorkerCard:
    card = _ask(caller, control, lambda: caller.hello("worker", plan, own), WorkerCard)
    check_card(card, worker, engine.run, plan, card.nonce)
    shape.check(geometry(card), plan.prefill, worker)
    return card


def _ask(caller: Caller, control: AskingLine, question: Callable[[], Hello], kind: type[T]) -> T:
    """Ask until a card comes, and return it. Raises the error of a final refusal, or HandshakeError at the deadline."""
    while True:
        hello = question()
        if not control.send(hello):
            raise control.broken() or HandshakeError(f"{control.address} takes no message")
        answer = _check_answer(_next_message(caller, control), hello, kind, control.address)
        if not isinstance(answer, Refusal):
            return answer
        if caller.seconds_left() < PAUSE:
            raise HandshakeError(f"{control.address}: {_printable(answer.message)}, no change before the deadline")
        time.sleep(PAUSE)


def _next_message(caller: Caller, control: AskingLine) -> Any:
    """Wait for the next message and return it. Raises the connection's error, or HandshakeError at the deadline."""
    while True:
        messages = control.receive(1)
        if messages:
            return messages[0]
        if (broken := control.broken()) is not None:
            raise broken
        if caller.seconds_left() <= 0:
            raise HandshakeError(f"{control.address} did not answer before the deadline: is it running, and polled?")
        control.wait(max(0.0, min(SLICE, caller.seconds_left())))


def _check_answer(answer: Any, hello: Hello, kind: type[T], address: str) -> T | Refusal:
    """Return the card, or a refusal that a later question may change. Raises an error for any other answer."""
    if isinstance(answer, KvplanError):
        raise answer
    if not isinstance(answer, kind | Refusal):
        raise CardError(f"{address} answers with a {type(answer).__name__} when asked for a card of the {hello.want}")
    unread = isinstance(answer, Refusal) and not answer.nonce
    if answer.nonce != hello.nonce and not unread:
        raise ReplayError(f"{address} answers {answer.nonce.hex()!r}, asked was {hello.nonce.hex()!r}: connect again")
    if isinstance(answer, Refusal) and not answer.again:
        raise BY_CODE.get(answer.code, HandshakeError)(f"{address} refuses: {_printable(answer.message)}")
    return answer


def _printable(message: str) -> str:
    """Return a peer's text as one line, without control characters."""
    return "".join(character if character.isprintable() else " " for character in message)
