"""Readers: connections of decode workers, the requests that each claims, and how much it was notified of."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvplan.plan.types import Interval, Plan
from kvplan.runtime.control.messages import LossReason, WireTables, unpack
from kvplan.runtime.errors import CardError
from kvplan.runtime.machine import Facts
from kvplan.runtime.protocol.holds import Claimant
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.transfer.demand import PairRules


@dataclass(frozen=True, slots=True, eq=False)
class Reader(Facts):
    """One connection of a decode worker. It is written to by the rules `writes`, or reads by itself without them.

    `contract` are the decode workers that have to say Done to this worker for each request.
    """

    identity: bytes
    name: str
    claimant: Claimant
    plan: Plan
    contract: frozenset[int]
    writes: PairRules | None = None

    @property
    def key(self) -> str:
        """A name of this connection."""
        return f"{self.name}/{self.claimant.worker}/{self.identity.hex()}"


@dataclass(slots=True)
class ReaderClaim:
    """A request that a decode worker claims: in chunks if `streamed`, otherwise as a whole.

    `claimed_at` is the time of the last claim, in seconds. `announced` is how many chunks were offered, None until the
    reader knows that the request is kept. `tables` are the prefill blocks that the claim names, until they are
    compared. `tokens` are those that the reader needs, if any; `fits` is the hold that both were compared with. An
    `early` claim came before the hold. Early claims are not bounded elsewhere, so only their names are kept.
    """

    streamed: bool
    claimed_at: float = 0.0
    early: bool = False
    announced: int | None = None
    fits: int | None = None
    tables: WireTables | None = None
    tokens: Interval | None = None

    def misfit(self, source: SourceRequest, plan: Plan, worker: int) -> tuple[LossReason, str] | None:
        """Return why a whole source has other blocks than decode knows, or lacks tokens; None if it fits."""
        if self.tables is None and self.fits == source.hold:
            return None
        if why := self._difference(source):
            return LossReason.UNLIKE, why
        if self.tokens is not None and (why := source.untiled(plan, worker, self.tokens)):
            return LossReason.UNTILED, why
        self.fits, self.tables = source.hold, None
        return None

    def _difference(self, source: SourceRequest) -> str:
        """Return why decode's blocks are not those held; empty if they are, or only decode names blocks."""
        if self.tables is None:
            return "it was claimed for another hold" if source.names_all else ""
        try:
            return source.differs(unpack(self.tables))
        except CardError as error:
            return str(error)


@dataclass(slots=True)
class Session:
    """The state of a reader. `last_message` is when that was read, in seconds, `heartbeat` its last claim's number.

    `unannounced` are the requests with news that its line had no room for yet.
    """

    reader: Reader
    last_message: float
    heartbeat: int = 0
    claims: dict[str, ReaderClaim] = field(default_factory=dict)
    unannounced: dict[str, None] = field(default_factory=dict)

    def forget(self, request: str) -> None:
        self.claims.pop(request, None)
