"""How a prefill worker answers a decode worker that introduces itself: a card, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.plan.errors import DigestError, KvplanError
from kvplan.plan.types import Plan, Side
from kvplan.runtime.control.card import PROTOCOL, EngineCard, Hello, Refusal, WorkerCard, describe, geometry
from kvplan.runtime.control.handshake_checks import PairTerms, check_card, check_like, named
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.errors import HandshakeError
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.plans.catalog import PlanSource

LONGEST = 4000


@dataclass(frozen=True, slots=True)
class PrefillFace:
    """One prefill worker as it is now. `addresses` are those of all workers, none before they are announced."""

    identity: Identity
    side: Side
    worker: int
    model: str
    model_digest: str
    plans: PlanSource
    generation: int
    addresses: tuple[str, ...]
    admission: bool
    geometry: Geometry
    metadata: bytes


def greet(hello: Hello, me: PrefillFace) -> EngineCard | WorkerCard | Refusal:
    """The card that was asked for, or a refusal with the code and the words of the error. Raises nothing."""
    try:
        check_like(PairTerms(me.model_digest, me.identity), _like(hello), f"decode engine {hello.name!r}", hello.run)
        if hello.want == "engine":
            return _engine(hello, me)
        if hello.want != "worker":
            raise HandshakeError(f"{hello.want!r} is asked for: there is an engine card and a worker card")
        plan = served(hello, me)
        card = describe(me.worker, plan, me.identity.run, me.generation, me.geometry, me.metadata, hello.nonce)
    except KvplanError as error:
        return Refusal(error.code, str(error)[:LONGEST], error.again, hello.nonce)
    return card


def served(hello: Hello, me: PrefillFace) -> Plan:
    """The plan for a decode worker that asked for a worker card, its own card checked against it.

    Raises PlanMissingError, DigestError, HandshakeError, CardError, RegisterError or AddressError.
    """
    plan = me.plans.find(me.model, me.model_digest, (me.side.digest, me.side.key), (hello.side, hello.key))
    for name, theirs, ours in (
        ("plan", hello.plan, plan.digest),
        ("model", hello.model_digest, plan.model_digest),
        ("decode side", hello.side, plan.decode.digest),
        ("prefill side", me.side.digest, plan.prefill.digest),
    ):
        if theirs != ours:
            raise DigestError(f"{name} digest is {theirs!r}, our plan has {ours!r}: compile both sides from one layout")
    if hello.worker >= len(plan.decode.workers):
        raise HandshakeError(f"decode worker {hello.worker} is none of the plan's {len(plan.decode.workers)}")
    if me.worker not in named(plan, hello.worker):
        text = f"the plan has decode worker {hello.worker} ask others than prefill worker {me.worker}"
        raise HandshakeError(f"{text}: announce the addresses in the plan's order")
    if hello.card is not None:
        _check_push(hello.card, hello, plan)
    return plan


def _check_push(card: WorkerCard, hello: Hello, plan: Plan) -> None:
    check_card(card, hello.worker, hello.run, plan, hello.nonce)
    shape.check(geometry(card), plan.decode, hello.worker)


def _engine(hello: Hello, me: PrefillFace) -> EngineCard | Refusal:
    if not me.addresses:
        text = "announce was not called on it: the engine's workers are not all up"
        return Refusal(HandshakeError.code, text, True, hello.nonce)
    return EngineCard(
        nonce=hello.nonce,
        protocol=PROTOCOL,
        name=me.identity.name,
        run=me.identity.run,
        generation=me.generation,
        model=me.model,
        model_digest=me.model_digest,
        revision=me.identity.revision,
        scales=me.identity.scales,
        side=me.side.digest,
        key=me.side.key,
        addresses=me.addresses,
        admission=me.admission,
    )


def _like(hello: Hello) -> PairTerms:
    return PairTerms(hello.model_digest, hello)
