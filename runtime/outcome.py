"""How a request ends: one of four outcomes, each of which says which decode blocks may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.runtime.errors import CancelledTransferError, DeadlineError, KvplanError, RequestError

Untrusted = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Every byte that the request needs is there, and its source lasted until it was. `size` is bytes."""

    size: int
    state: str = "done"


@dataclass(frozen=True, slots=True)
class Broken:
    """It failed. `reason` is the error's code; `untrusted` are decode block ids by group that may hold anything."""

    reason: str
    error: KvplanError
    untrusted: Untrusted
    state: str = "failed"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The caller cancelled it."""

    reason: str
    error: KvplanError
    untrusted: Untrusted
    state: str = "cancelled"


@dataclass(frozen=True, slots=True)
class Expired:
    """Its deadline went by."""

    reason: str
    error: KvplanError
    untrusted: Untrusted
    state: str = "expired"


Outcome = Arrived | Broken | Abandoned | Expired


def outcome(error: KvplanError) -> Outcome:
    """The outcome of a request that ended with `error`."""
    untrusted = error.untrusted if isinstance(error, RequestError) else {}
    if isinstance(error, CancelledTransferError):
        return Abandoned(error.code, error, untrusted)
    if isinstance(error, DeadlineError):
        return Expired(error.code, error, untrusted)
    return Broken(error.code, error, untrusted)
