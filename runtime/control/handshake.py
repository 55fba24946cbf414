"""Meet a prefill engine: its engine card first, then the cards of the workers that the plan names."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kvplan.plan.errors import DigestError, KvplanError, PlanPendingError
from kvplan.plan.types import Plan, Side
from kvplan.runtime import errors
from kvplan.runtime.clock import now
from kvplan.runtime.control.card import NONCE, EngineCard, Hello, Refusal, WorkerCard, geometry
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake_checks import PairTerms, check_card, check_like, named
from kvplan.runtime.control.handshake_server import PrefillFace, greet, served
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.errors import CardError, HandshakeError, ReplayError
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.plans.catalog import PlanSource

__all__ = ["MetEngine", "PlanSource", "PrefillFace", "greet", "meet", "named", "served"]

T = TypeVar("T", EngineCard, WorkerCard)
PAUSE = 0.02
# Waits are cut into slices, so that a clock that is not the machine's is looked at, too.
SLICE = 0.1
CLASSES = {one.code: one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, KvplanError)}
EVERYWHERE = ("//*:", "//0.0.0.0:", "//[::]:")


@dataclass(frozen=True, slots=True)
class MetEngine:
    """An engine, the plan, and the workers that the plan names, each card checked against it, each line open."""

    engine: EngineCard
    plan: Plan
    workers: tuple[tuple[WorkerCard, ControlClient], ...]

    def close(self) -> None:
        """Speak to none of them any more."""
        for _, line in self.workers:
            line.close()


@dataclass(frozen=True, slots=True)
class _Caller:
    """A decode worker that introduces itself."""

    identity: Identity
    side: Side
    worker: int
    model_digest: str
    keys: Keys | Plain
    server_key: bytes | None
    deadline: float
    clock: Callable[[], float]

    def line(self, address: str) -> ControlClient:
        return ControlClient(address, self.keys, self.server_key)

    def hello(self, want: str, plan: Plan | None = None, card: WorkerCard | None = None) -> Hello:
        """A question with a nonce of its own."""
        nonce, me = os.urandom(NONCE), self.identity
        model = plan.model_digest if plan else self.model_digest
        card = None if card is None else msgspec.structs.replace(card, nonce=nonce)
        digest = plan.digest if plan else ""
        known = nonce, me.name, me.run, self.worker, model, me.revision, me.scales, self.side.digest, self.side.key
        return Hello(want, *known, digest, card)

    @property
    def left(self) -> float:
        return self.deadline - self.clock()


def meet(
    identity: Identity,
    side: Side,
    worker: int,
    plans: PlanSource,
    address: str,
    deadline: float,
    keys: Keys | Plain,
    server_key: bytes | None,
    card_for: Callable[[Plan], WorkerCard | None],
    clock: Callable[[], float] = now,
    model_digest: str = "",
) -> MetEngine:
    """Meet the engine that answers at `address`, until `deadline` in the clock's time. The caller closes the lines.

    `card_for` gives the decode worker's own card where the pair pushes. `model_digest` is left empty by one that
    knows its model only from the plan. Raises HandshakeError, OwnCardError, UnlikeError, StalePeerError, CardError,
    ReplayError, KeysError, DigestError, PlanMissingError, PeerLostError, RegisterError, AddressError, and what the
    peer refuses with; then no line is open.
    """
    if not math.isfinite(deadline):
        raise HandshakeError(f"a deadline of {deadline} is none: give seconds")
    caller = _Caller(identity, side, worker, model_digest, keys, server_key, deadline, clock)
    with closing(caller.line(address)) as line:
        engine = _ask(caller, line, lambda: caller.hello("engine"), EngineCard)
    mine = PairTerms(model_digest, identity)
    check_like(mine, PairTerms(engine.model_digest, engine), f"prefill engine {engine.name!r}", engine.run)
    plan = _found(caller, plans, engine)
    _check_plan(plan, engine, side, worker)
    card = card_for(plan)
    with ExitStack() as stack:
        met = tuple(_worker(caller, stack, address, engine, plan, one, card) for one in named(plan, worker))
        stack.pop_all()
    return MetEngine(engine, plan, met)


def _found(caller: _Caller, plans: PlanSource, engine: EngineCard) -> Plan:
    """The plan for the pair; one that is being compiled is waited for. Raises what finding it raises."""
    ends = (engine.side, engine.key), (caller.side.digest, caller.side.key)
    while True:
        try:
            return plans.find(engine.model, engine.model_digest, *ends)
        except PlanPendingError:
            if caller.left < PAUSE:
                raise
            time.sleep(PAUSE)


def _check_plan(plan: Plan, engine: EngineCard, side: Side, worker: int) -> None:
    for name, got, want in (
        ("model", engine.model_digest, plan.model_digest),
        ("prefill side", engine.side, plan.prefill.digest),
        ("decode side", side.digest, plan.decode.digest),
    ):
        if got != want:
            raise DigestError(f"{name} digest is {got!r}, that of the plan found {want!r}: compile the plan again")
    if not 0 <= worker < len(plan.decode.workers):
        raise HandshakeError(f"decode worker {worker} is none of the plan's {len(plan.decode.workers)}")
    if len(engine.addresses) != len(plan.prefill.workers):
        both = f"{len(engine.addresses)} addresses, the plan {len(plan.prefill.workers)} workers"
        raise CardError(f"prefill engine {engine.name!r} has {both}: announce all workers")


def _worker(
    caller: _Caller,
    stack: ExitStack,
    asked: str,
    engine: EngineCard,
    plan: Plan,
    source: int,
    card: WorkerCard | None,
) -> tuple[WorkerCard, ControlClient]:
    address = engine.addresses[source]
    if address.partition("://")[0] != asked.partition("://")[0] or any(one in address for one in EVERYWHERE):
        raise HandshakeError(f"worker {source} is announced at {address!r}: announce where decode workers reach it")
    line = stack.enter_context(closing(caller.line(address)))
    found = _ask(caller, line, lambda: caller.hello("worker", plan, card), WorkerCard)
    check_card(found, source, engine.run, plan, found.nonce)
    shape.check(geometry(found), plan.prefill, source)
    return found, line


def _ask(caller: _Caller, line: ControlClient, question: Callable[[], Hello], kind: type[T]) -> T:
    """Ask until there is a card, a refusal that stays, or no time left."""
    while True:
        hello = question()
        if not line.send(hello):
            raise line.broken() or HandshakeError(f"{line.address} takes no message")
        answer = _checked(_answer(caller, line), hello, kind, line.address)
        if not isinstance(answer, Refusal):
            return answer
        if caller.left < PAUSE:
            raise HandshakeError(f"{line.address}: {_printable(answer.message)}, no change before the deadline")
        time.sleep(PAUSE)


def _answer(caller: _Caller, line: ControlClient) -> Any:
    """The next message of a line. Raises what broke it, or HandshakeError at the deadline."""
    while True:
        found = line.receive(1)
        if found:
            return found[0]
        if (broken := line.broken()) is not None:
            raise broken
        if caller.left <= 0:
            raise HandshakeError(f"{line.address} did not answer before the deadline: is it running, and polled?")
        line.wait(min(SLICE, caller.left))


def _checked(answer: Any, hello: Hello, kind: type[T], address: str) -> T | Refusal:
    """The card that was asked for, or a refusal after which asking again may help. Raises everything else."""
    if isinstance(answer, KvplanError):
        raise answer
    if not isinstance(answer, kind | Refusal):
        raise CardError(f"{address} answers with a {type(answer).__name__} when asked for a card of the {hello.want}")
    unread = isinstance(answer, Refusal) and not answer.nonce
    if answer.nonce != hello.nonce and not unread:
        raise ReplayError(f"{address} answers {answer.nonce.hex()!r}, asked was {hello.nonce.hex()!r}: connect again")
    if isinstance(answer, Refusal) and not answer.again:
        raise CLASSES.get(answer.code, HandshakeError)(f"{address} refuses: {_printable(answer.message)}")
    return answer


def _printable(message: str) -> str:
    """A peer's words in one line, without control characters."""
    return "".join(one if one.isprintable() else " " for one in message)
