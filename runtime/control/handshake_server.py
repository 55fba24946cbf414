"""Handshake, the prefill worker's end: a card for a decode worker that introduces itself, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.plan.errors import DigestError, KvplanError
from kvplan.plan.types import Plan, Side
from kvplan.runtime.control.card import PROTOCOL, EngineCard, Hello, Refusal, WorkerCard, describe, geometry
from kvplan.runtime.control.handshake_checks import check_card, check_like, contacts
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.errors import EXITS, HandshakeError, cause_text
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import PlanSource

LONGEST = 4000
LAYOUT = "compile both sides from one layout"
CHOICE = "have both engines choose plans by the same options, of one layout and one kvplan"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFace:
    """One prefill worker as peers see it now. `addresses` are those of all workers, none before they are announced.

    One that is `asleep` has no memory for now.
    """

    identity: Identity
    side: Side
    worker: int
    plans: PlanSource
    generation: int
    addresses: tuple[str, ...]
    geometry: Geometry
    metadata: bytes
    fabrics: frozenset[str] = frozenset()
    asleep: bool = False


def answer_hello(hello: Hello, face: PrefillFace) -> EngineCard | WorkerCard | Refusal:
    """The card that was asked for, or a refusal with the code and the words of the error. Raises nothing."""
    try:
        check_like(face.identity, hello, f"decode engine {hello.name!r}")
        if hello.want == "engine":
            return _engine_card(hello, face)
        if hello.want != "worker":
            raise HandshakeError(f"{hello.want!r} is asked for: there is an engine card and a worker card")
        run, plan = face.identity.run, served_plan(hello, face)
        memory = face.geometry, face.metadata
        return describe(face.worker, plan, run, face.generation, *memory, hello.nonce, face.fabrics)
    except KvplanError as error:
        return Refusal(error.code, str(error)[:LONGEST], error.again, hello.nonce)


def served_plan(hello: Hello, face: PrefillFace) -> Plan:
    """The plan for a decode worker that asked for a worker card, its own card checked against it.

    Raises PlanMissingError, DigestError, HandshakeError, CardError, RegisterError or AddressError.
    """
    side, plan = face.side, _found_plan(hello, face)
    for name, remote, local, help in (
        ("model", hello.model_digest, plan.model_digest, LAYOUT),
        ("decode side", hello.side, plan.decode.digest, LAYOUT),
        ("prefill side", side.digest, plan.prefill.digest, LAYOUT),
        ("plan", hello.plan, plan.digest, CHOICE),
    ):
        if remote != local:
            raise DigestError(f"{name} digest is {remote!r}, our plan has {local!r}: {help}")
    if hello.worker >= len(plan.decode.workers):
        raise HandshakeError(f"decode worker {hello.worker} is none of the plan's {len(plan.decode.workers)}")
    if face.worker not in contacts(plan, hello.worker):
        text = f"the plan has decode worker {hello.worker} ask others than prefill worker {face.worker}"
        raise HandshakeError(f"{text}: announce the addresses in the plan's order")
    if hello.card is not None:
        check_card(hello.card, hello.worker, hello.run, plan, hello.nonce)
        shape.check(geometry(hello.card), plan.decode, hello.worker)
    return plan


def _found_plan(hello: Hello, face: PrefillFace) -> Plan:
    """The plan for a decode worker. A source of plans that fails refuses this peer, and ends no poll.

    Raises what finding it raises, KvplanError.
    """
    identity, side = face.identity, face.side
    try:
        return face.plans.find(identity.model, identity.model_digest, (side.digest, side.key), (hello.side, hello.key))
    except (KvplanError, *EXITS):
        raise
    except BaseException as error:  # A source may be the caller's.
        logs.failure("plan source failed", engine=hello.name, run=hello.run)
        raise HandshakeError(f"the plan source of the prefill engine failed: {cause_text(error)}") from error


def _engine_card(hello: Hello, face: PrefillFace) -> EngineCard | Refusal:
    if not face.addresses:
        text = "announce was not called on it: the engine's workers are not all up"
        return Refusal(HandshakeError.code, text, True, hello.nonce)
    identity = face.identity
    return EngineCard(
        nonce=hello.nonce,
        protocol=PROTOCOL,
        name=identity.name,
        run=identity.run,
        generation=face.generation,
        model=identity.model,
        model_digest=identity.model_digest,
        revision=identity.revision,
        scales=identity.scales,
        side=face.side.digest,
        key=face.side.key,
        addresses=face.addresses,
        settings=dict(identity.settings),
    )
