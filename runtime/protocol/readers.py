"""Readers: connections of decode workers, what each claims, and what it was told of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvplan.plan.request import RequestRules
from kvplan.plan.types import Interval, Plan
from kvplan.runtime.control.messages import LossReason, WireTables, unpack
from kvplan.runtime.errors import CardError
from kvplan.runtime.machine import Facts
from kvplan.runtime.protocol.leases import Claimant
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.transfer.demand import DemandRules


@dataclass(frozen=True, slots=True, eq=False)
class WriteTarget(Facts):
    """A decode worker that is written to: its name in the transport, and by what its requests are checked and matched.

    `prefill_blocks` and `decode_blocks` are logical blocks by group, here and there.
    """

    peer: str
    rules: RequestRules
    demands: DemandRules
    prefill_blocks: Mapping[str, int]
    decode_blocks: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Reader(Facts):
    """One connection of a decode worker. It is written to if it has a `target`, and reads by itself otherwise.

    `contract` are the decode workers that tell this worker when they are done with a request.
    """

    identity: bytes
    name: str
    claimant: Claimant
    plan: Plan
    contract: frozenset[int]
    target: WriteTarget | None = None

    @property
    def key(self) -> str:
        """A name of this connection."""
        return f"{self.name}/{self.claimant.worker}/{self.identity.hex()}"


@dataclass(slots=True)
class ReaderClaim:
    """A request that a decode worker needs: in chunks where it is `streamed`, otherwise as a whole.

    It was claimed last when that was `heard`, in seconds.
    `announced` is how many chunks were offered, None until it was told that the request is kept. `tables` are the
    prefill blocks that it was claimed with, until they are compared, and `tokens` those that it reads, if any; `fits`
    is the pin that both were compared with. One that is `early` was claimed before the request was held. Early claims
    are not bounded elsewhere, so only their names are kept.
    """

    streamed: bool
    heard: float = 0.0
    early: bool = False
    announced: int | None = None
    fits: int | None = None
    tables: WireTables | None = None
    tokens: Interval | None = None

    def name(self, tables: WireTables, tokens: Interval | None) -> None:
        """It is claimed with its blocks, maybe again."""
        self.tables, self.tokens, self.fits, self.early = tables, tokens, None, False

    def wait(self) -> None:
        """The request is not held: its blocks are to be named when it is."""
        self.tables, self.tokens, self.early = None, None, not self.streamed

    def misfit(self, source: SourceRequest, plan: Plan, worker: int) -> tuple[LossReason, str] | None:
        """Why a source that is whole is not what decode was told of, or not all that it asks for; None if it is."""
        if self.tables is None and self.fits == source.pin:
            return None
        if why := self._unlike(source):
            return LossReason.UNLIKE, why
        if self.tokens is not None and (why := source.untiled(plan, worker, self.tokens)):
            return LossReason.UNTILED, why
        self.fits, self.tables = source.pin, None
        return None

    def _unlike(self, source: SourceRequest) -> str:
        """Why the blocks that decode was told of are not those held; empty where they are, or only decode knows."""
        if self.tables is None:
            return "it was claimed for another hold" if source.names_all else ""
        try:
            return source.differs(unpack(self.tables))
        except CardError as error:
            return str(error)


@dataclass(slots=True)
class Session:
    """The state of a reader. `heard` is when it last spoke, in seconds, `heartbeat` its last claim.

    `unannounced` are the requests that it was not told everything of, as its line took no more.
    """

    reader: Reader
    heard: float
    heartbeat: int = 0
    claims: dict[str, ReaderClaim] = field(default_factory=dict)
    unannounced: dict[str, None] = field(default_factory=dict)

    def forget(self, request: str) -> None:
        self.claims.pop(request, None)
