"""What goes into a simulation of one pair of sides, and what comes out. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import nan

from kvplan.dsl.schema.fleet import DecodeFigures, PrefillFigures
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.runtime.transfer.limits import Limits
from kvplan.traffic.loads import TransferLoads


class RequestEnd(StrEnum):
    """How a request ended: answered; refused, as an engine has no room; not claimed before its lease was over."""

    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class SimulatedPair:
    """A pair of sides in a fleet: figures of its engines, what transfers move, and by whose rules.

    `mode` is who moves the bytes. A request moves in `pieces`, as its layers are computed, 1 for all at once. Blocks
    are in tokens.
    """

    prefill: PrefillFigures
    decode: DecodeFigures
    prefill_block: int
    decode_block: int
    loads: TransferLoads
    mode: str
    pieces: int
    router: str
    limits: Limits
    cores: float | None
    profile: MachineProfile


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """What became of a request, and when it got there; NaN for what it did not reach.

    `began` to be computed, `computed`, `submitted` to be moved (it is computed and decode has blocks for it), `moved`,
    `first` token, `answered`.
    """

    arrived: float
    end: RequestEnd
    began: float = nan
    computed: float = nan
    submitted: float = nan
    moved: float = nan
    first: float = nan
    answered: float = nan


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What one engine was kept busy with: microseconds of computing, of its busiest posting thread, and bytes over its
    cards; `rails` bytes a microsecond are the most these move, `most` blocks of `blocks` were in use at once.
    """

    computed: float
    posting: float
    bytes: float
    rails: float
    most: int
    blocks: int


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """All requests in the order of their arrival, what engines were busy with, and `working` microseconds of all
    `cores` that they share together; both 0 where they share none.
    """

    requests: tuple[RequestTimes, ...]
    prefill: tuple[EngineUse, ...]
    decode: tuple[EngineUse, ...]
    working: float
    cores: float
