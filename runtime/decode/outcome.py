"""How a request ends: one of four outcomes, each of which says which decode blocks may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.runtime.errors import CancelledTransferError, DeadlineError

Untrusted = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Every byte that the request needs is there, and its source lasted until it was. `size` is bytes."""

    size: int
    state: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True)
class _Missed:
    """`reason` is the error's code; `untrusted` are decode block ids by group that may hold anything."""

    reason: str
    error: KvplanError
    untrusted: Untrusted


@dataclass(frozen=True, slots=True)
class Broken(_Missed):
    """It failed."""

    state: ClassVar[str] = "failed"


@dataclass(frozen=True, slots=True)
class Abandoned(_Missed):
    """The caller cancelled it."""

    state: ClassVar[str] = "cancelled"


@dataclass(frozen=True, slots=True)
class Expired(_Missed):
    """Its deadline went by."""

    state: ClassVar[str] = "expired"


Outcome = Arrived | Broken | Abandoned | Expired


def outcome(error: KvplanError) -> Outcome:
    """The outcome of a request that ended with `error`."""
    kind: type[Broken | Abandoned | Expired] = Broken
    if isinstance(error, CancelledTransferError):
        kind = Abandoned
    elif isinstance(error, DeadlineError):
        kind = Expired
    return kind(error.code, error, error.untrusted if isinstance(error, RequestError) else {})
