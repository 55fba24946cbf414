"""Checks that both sides of a handshake make of each other, before a transport hears of the peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kvplan.plan.errors import DigestError
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import WorkerCard, checksum
from kvplan.runtime.errors import CardError, OwnCardError, ReplayError, StalePeerError, UnlikeError


class EngineTerms(Protocol):
    """What an Identity, an EngineCard and a Hello say of their engine: the run, and what both sides must have alike.

    An empty model digest is not known yet. Settings that one side alone names are not compared.
    """

    @property
    def run(self) -> str: ...
    @property
    def model_digest(self) -> str: ...
    @property
    def revision(self) -> str: ...
    @property
    def scales(self) -> str: ...
    @property
    def settings(self) -> Mapping[str, str]: ...


def contacts(plan: Plan, decode_worker: int) -> tuple[int, ...]:
    """The prefill workers that a decode worker reads from or notifies."""
    return tuple(sorted({read.worker for read in plan.reads[decode_worker]} | set(plan.notify[decode_worker])))


def check_like(local: EngineTerms, remote: EngineTerms, peer: str) -> None:
    """Raises OwnCardError where a peer is this very engine, UnlikeError where it runs something else."""
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
