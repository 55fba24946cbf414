"""What both sides of a handshake check of each other, before a transport hears of the peer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

from kvplan.plan.errors import DigestError
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import WorkerCard, checksum
from kvplan.runtime.errors import CardError, OwnCardError, ReplayError, StalePeerError, UnlikeError


class EngineRun(Protocol):
    """What an Identity, an EngineCard and a Hello have in common."""

    @property
    def revision(self) -> str: ...
    @property
    def scales(self) -> str: ...
    @property
    def run(self) -> str: ...


def named(plan: Plan, worker: int) -> tuple[int, ...]:
    """The prefill workers that a decode worker reads from or notifies."""
    return _named(_Same(plan), worker)


class _Same:
    """A plan by what it is, not by what is in it: the hash of a plan looks at all of its tables."""

    __slots__ = ("plan",)

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __hash__(self) -> int:
        return id(self.plan)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.plan is other.plan


@functools.lru_cache(maxsize=4096)
def _named(same: _Same, worker: int) -> tuple[int, ...]:
    return tuple(sorted({read.worker for read in same.plan.reads[worker]} | set(same.plan.notify[worker])))


@dataclass(frozen=True, slots=True)
class PairTerms:
    """What must be equal on both sides, beside the plan. An empty model digest is not known yet."""

    model_digest: str
    who: EngineRun


def check_like(mine: PairTerms, theirs: PairTerms, peer: str, run: str) -> None:
    """Raises OwnCardError where a peer is this very engine, UnlikeError where it runs something else."""
    if run == mine.who.run:
        raise OwnCardError(f"{peer} is this very engine, run {run}: give the address of another")
    if mine.model_digest and theirs.model_digest and mine.model_digest != theirs.model_digest:
        both = f"{theirs.model_digest!r}, ours is {mine.model_digest!r}"
        raise UnlikeError(f"{peer} has model digest {both}: start both with one model, or compile both again")
    for what in ("revision", "scales"):
        _check_value(peer, what, getattr(mine.who, what), getattr(theirs.who, what))


def _check_value(peer: str, what: str, mine: str, theirs: str) -> None:
    if mine == theirs:
        return
    none = f"; {peer} gives none" if not theirs else "; this side gives none" if not mine else ""
    raise UnlikeError(f"{peer} has {what} {theirs!r}, ours is {mine!r}{none}: start both with the same {what}")


def check_card(card: WorkerCard, worker: int, run: str, plan: Plan, nonce: bytes) -> None:
    """Raises CardError, ReplayError, StalePeerError or DigestError where a card is not that of the worker meant."""
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
