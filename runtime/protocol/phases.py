"""State machine of a decode transfer: what happens between it and one prefill worker, from the claim to the end.

A transfer has one phase for each prefill worker that the plan names. It is done when all of them are CONFIRMED and all
that was read is in its place. It fails as a whole: then each is LEAVING until nothing of it can be written any more,
which ends the quarantine of its blocks. docs/runtime.md has the drawing of TRANSFER.
"""

from __future__ import annotations

from enum import IntEnum, auto

from kvplan.runtime.machine import StateMachine
from kvplan.runtime.ops.metrics import MessageKind


class Phase(IntEnum):
    """How far a transfer is with one prefill worker. Those before LEAVING follow each other."""

    # Until the worker says that it keeps the request, and by which pin.
    CLAIMING = auto()
    # Bytes move, or chunks are waited for.
    MOVING = auto()
    # Every byte from it was read: what goes by way of a stage may still be copied to its place.
    ARRIVED = auto()
    # Done was sent to it: without checksums to all workers in one step.
    TOLD = auto()
    # Its pin lasted until then.
    CONFIRMED = auto()
    # The transfer has failed, and something of it may still be written.
    LEAVING = auto()
    LEFT = auto()


class Event(IntEnum):
    """What happens between a transfer and one prefill worker: its words, and what is done here."""

    # Messages.
    CLAIMED = auto()
    OFFERED = auto()
    WRITTEN = auto()
    CONFIRMED = auto()
    STOPPED = auto()
    # Nothing is to be moved from it, or all that is was read.
    ARRIVED = auto()
    TOLD = auto()
    FAILED = auto()
    # No read of it is in progress, and it writes no more.
    SETTLED = auto()


RUNNING = (Phase.CLAIMING, Phase.MOVING, Phase.ARRIVED, Phase.TOLD, Phase.CONFIRMED)
TRANSFER = StateMachine(
    "a transfer",
    {
        (Phase.CLAIMING, Event.CLAIMED): Phase.MOVING,
        (Phase.MOVING, Event.OFFERED): Phase.MOVING,
        (Phase.MOVING, Event.ARRIVED): Phase.ARRIVED,
        (Phase.MOVING, Event.WRITTEN): Phase.ARRIVED,
        (Phase.ARRIVED, Event.TOLD): Phase.TOLD,
        (Phase.TOLD, Event.CONFIRMED): Phase.CONFIRMED,
        **{(phase, Event.FAILED): Phase.LEAVING for phase in RUNNING},
        (Phase.LEAVING, Event.STOPPED): Phase.LEAVING,
        (Phase.LEAVING, Event.SETTLED): Phase.LEFT,
    },
)


def refused(phase: Phase, event: Event) -> MessageKind:
    """The kind of a message that has no place in its transfer's phase: it came too early, or once more."""
    early = all(phase < taking for taking, other in TRANSFER.table if other is event)
    return MessageKind.STALE if early else MessageKind.DUPLICATE
