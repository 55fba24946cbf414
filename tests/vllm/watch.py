"""How far a load is, by the names of cases.Stage, seen on the runtime's transfer. Runs in vLLM's environment."""

from __future__ import annotations

import time
from typing import Any

WATCH_S, LOOK_S = 10.0, 50e-6
ORDER = ("MEETING", "WAITING_FOR_HOLD", "BEING_LOADED", "LOADED")


def transfer_of(connector: Any, request: str) -> Any:
    """The transfer of a request, by the name that its client gave it; None if no transfer is in progress."""
    loads = connector._worker._decode._loads
    return next((load for name, load in loads.items() if name.rsplit("-", 1)[0] == request), None)


def reached(transfer: Any, stage: str) -> bool:
    """Wait for a stage; False where it was over before it was seen, or did not come."""
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        now = stage_of(transfer)
        if now == stage:
            return transfer.error is None
        if now and ORDER.index(now) > ORDER.index(stage):
            return False
        time.sleep(LOOK_S)
    return False


def stage_of(transfer: Any) -> str:
    """The stage, empty between two of them."""
    if transfer.ended:
        return "LOADED"
    if not transfer.parts:
        return "MEETING"
    phases = [part.phase.name for part in transfer.parts]
    if "MOVING" in phases:
        return "BEING_LOADED"
    not_held = all(part.not_held for part in transfer.parts)
    return "WAITING_FOR_HOLD" if not_held and set(phases) == {"CLAIMING"} else ""
