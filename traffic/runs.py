"""The input and the output of a simulation of one pair of sides. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import nan

from kvplan.dsl.schema.fleet import DecodeFigures, PrefillFigures
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.runtime.transfer.limits import Limits
from kvplan.traffic.loads import TransferLoads


class RequestEnd(StrEnum):
    """The end of a request: answered; refused, because an engine has no room; or not claimed within its lease."""

    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class SimulatedPair:
    """A pair of sides in a fleet: figures of its engines, the loads of its transfers, and its rules.

    `mode` says which side moves the bytes. A request moves in `pieces`, as its layers are computed, 1 for all at once.
    Blocks are in tokens.
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
    """The result of a request and its times; NaN for times that it did not reach.

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
    """The use of one engine: microseconds of computing, of its busiest posting thread, and bytes over its cards. These
    move at most `rails` bytes a microsecond. At most `most` blocks of `blocks` were in use at once.
    """

    computed: float
    posting: float
    bytes: float
    rails: float
    most: int
    blocks: int


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """All requests in the order of their arrival, the use of engines, and `working` microseconds of all `cores` that
    they share; both are 0 if they share none.
    """

    requests: tuple[RequestTimes, ...]
    prefill: tuple[EngineUse, ...]
    decode: tuple[EngineUse, ...]
    working: float
    cores: float
