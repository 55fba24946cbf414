"""Outcomes: how a request ends, in one of four ways, and which decode blocks may hold anything then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.runtime.errors import CancelledTransferError, DeadlineError
from kvplan.runtime.machine import TextEnum

Untrusted = Mapping[str, tuple[int, ...]]


class TransferState(TextEnum):
    """What a transfer is: running, or ended by one outcome."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Arrived:
    """Every byte that the request needs is there, and its source lasted until it was. `size` is bytes."""

    size: int
    state: ClassVar[TransferState] = TransferState.DONE


@dataclass(frozen=True, slots=True)
class _Missed:
    """`reason` is the error's code; `untrusted` are decode block ids by group that may hold anything."""

    reason: str
    error: KvplanError
    untrusted: Untrusted


@dataclass(frozen=True, slots=True)
class Broken(_Missed):
    """It failed."""

    state: ClassVar[TransferState] = TransferState.FAILED


@dataclass(frozen=True, slots=True)
class Abandoned(_Missed):
    """The caller cancelled it."""

    state: ClassVar[TransferState] = TransferState.CANCELLED


@dataclass(frozen=True, slots=True)
class Expired(_Missed):
    """Its deadline went by."""

    state: ClassVar[TransferState] = TransferState.EXPIRED


Outcome = Arrived | Broken | Abandoned | Expired


def outcome(error: KvplanError) -> Outcome:
    """The outcome of a request that ended with `error`."""
    kind: type[Broken | Abandoned | Expired] = Broken
    if isinstance(error, CancelledTransferError):
        kind = Abandoned
    elif isinstance(error, DeadlineError):
        kind = Expired
    return kind(error.code, error, error.untrusted if isinstance(error, RequestError) else {})
