"""Handshake: the checks that both sides make, and prefill's end, which answers with a card or a refusal."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.plan.errors import DigestError, KvplanError
from kvplan.plan.types import Plan, Side
from kvplan.runtime.control.card import (
    PROTOCOL,
    EngineCard,
    Hello,
    Refusal,
    WorkerCard,
    checksum,
    describe,
    geometry,
)
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.errors import (
    EXITS,
    CardError,
    HandshakeError,
    OwnCardError,
    ReplayError,
    StalePeerError,
    UnlikeError,
    cause_text,
)
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import PlanSource

LONGEST = 4000
LAYOUT = "compile both sides from one layout"
CHOICE = "have both engines choose plans by the same options, of one layout and one kvplan"


# Types that name an engine's run and everything that must be equal on both sides.
EngineTerms = Identity | EngineCard | Hello


def contacts(plan: Plan, decode_worker: int) -> tuple[int, ...]:
    """Return the prefill workers that a decode worker reads from or notifies."""
    return tuple(sorted({read.worker for read in plan.reads[decode_worker]} | set(plan.notify[decode_worker])))


def check_like(local: EngineTerms, remote: EngineTerms, peer: str) -> None:
    """Raises OwnCardError if a peer is this engine, UnlikeError if model, revision, scales or settings differ.

    An empty model digest is not known yet. Settings that only one side names are not compared.
    """
    if remote.run == local.run:
        raise OwnCardError(f"{peer} is this very engine, run {local.run}: give the address of another")
    if local.model_digest and remote.model_digest and local.model_digest != remote.model_digest:
        both = f"{remote.model_digest!r}, ours is {local.model_digest!r}"
        raise UnlikeError(f"{peer} has model digest {both}: start both with one model, or compile both again")
    _check_value(peer, "revision", local.revision, remote.revision)
    _check_value(peer, "scales", local.scales, remote.scales)
    for name in sorted(local.settings.keys() & remote.settings.keys()):
        _check_value(peer, name, local.settings[name], remote.settings[name])


def _check_value(peer: str, what: str, local: str, remote: str) -> None:
    if local == remote:
        return
    none = f"; {peer} gives none" if not remote else "; this side gives none" if not local else ""
    raise UnlikeError(f"{peer} has {what} {remote!r}, ours is {local!r}{none}: start both with the same {what}")


def check_plan(plan: Plan, model: str, prefill: str, decode: str, worker: int) -> None:
    """Raises DigestError if a plan has other digests, HandshakeError if it has no decode `worker`."""
    for name, got, own in (
        ("model", model, plan.model_digest),
        ("prefill side", prefill, plan.prefill.digest),
        ("decode side", decode, plan.decode.digest),
    ):
        if got != own:
            raise DigestError(f"{name} digest is {got!r}, our plan has {own!r}: {LAYOUT}")
    if not 0 <= worker < len(plan.decode.workers):
        raise HandshakeError(f"decode worker {worker} is none of the plan's {len(plan.decode.workers)}")


def check_card(card: WorkerCard, worker: int, run: str, plan: Plan, nonce: bytes) -> None:
    """Raises CardError, ReplayError, StalePeerError or DigestError if a card is not that of the expected worker."""
    if card.nonce != nonce:
        raise ReplayError(f"the card of worker {worker} answers {card.nonce.hex()!r}, asked was {nonce.hex()!r}")
    if card.worker != worker:
        raise CardError(f"worker {worker} is meant, worker {card.worker} shows its card: check the addresses")
    if card.run != run:
        raise StalePeerError(
            f"worker {worker} is of run {card.run!r}, its engine of {run!r}: give all workers one run, connect again"
        )
    if card.plan != plan.digest:
        raise DigestError(f"worker {worker} has plan digest {card.plan!r}, ours is {plan.digest!r}: compile both again")
    if checksum(card.metadata) != card.checksum:
        raise CardError(f"the transport metadata of worker {worker} is truncated or corrupt: connect again")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFace:
    """A prefill worker as peers see it now. `addresses` has those of all workers, and is empty until `announce`."""

    identity: Identity
    side: Side
    worker: int
    plans: PlanSource
    generation: int
    addresses: tuple[str, ...]
    geometry: Geometry
    metadata: bytes
    fabrics: frozenset[str] = frozenset()


def answer_hello(hello: Hello, face: PrefillFace) -> EngineCard | WorkerCard | Refusal:
    """Return the requested card, or a refusal with the error's code and text. Raises no error of kvplan."""
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
    """Return the plan for a decode worker that asked for a worker card, and check the decode worker's own card.

    Raises PlanMissingError, DigestError, HandshakeError, CardError, RegisterError or AddressError.
    """
    plan = _found_plan(hello, face)
    check_plan(plan, hello.model_digest, face.side.digest, hello.side, hello.worker)
    if hello.plan != plan.digest:
        raise DigestError(f"plan digest is {hello.plan!r}, our plan has {plan.digest!r}: {CHOICE}")
    if face.worker not in contacts(plan, hello.worker):
        text = f"the plan has decode worker {hello.worker} ask others than prefill worker {face.worker}"
        raise HandshakeError(f"{text}: announce the addresses in the plan's order")
    if hello.card is not None:
        check_card(hello.card, hello.worker, hello.run, plan, hello.nonce)
        shape.check(geometry(hello.card), plan.decode, hello.worker)
    return plan


def _found_plan(hello: Hello, face: PrefillFace) -> Plan:
    """Return the plan for a decode worker. If a caller's plan source fails, this peer is refused and polling goes on.

    Raises KvplanError.
    """
    identity, side = face.identity, face.side
    try:
        return face.plans.find(identity.model, identity.model_digest, (side.digest, side.key), (hello.side, hello.key))
    except (KvplanError, *EXITS):
        raise
    except BaseException as error:  # A plan source may be the caller's code.
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
