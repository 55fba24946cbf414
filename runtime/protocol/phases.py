"""State machine of a decode transfer with one prefill worker, from the claim to the end.

A transfer has one phase for each prefill worker that the plan names. It is done when all of them are CONFIRMED and all
bytes are in their places. It fails as a whole: then each phase is LEAVING until nothing from that worker can be written
any more; when all have LEFT, its blocks leave quarantine. docs/runtime.md has the drawing of TRANSFER.
"""

from __future__ import annotations

from enum import IntEnum, auto

from kvplan.runtime.machine import StateMachine
from kvplan.runtime.ops.metrics import MessageKind


class Phase(IntEnum):
    """How far a transfer is with one prefill worker. The phases before LEAVING follow each other."""

    # The worker has not answered yet that it holds the request, and its hold's number.
    CLAIMING = auto()
    # Bytes move, or the worker has not offered the next chunk yet.
    MOVING = auto()
    # Every byte from it has come; copies from the stage to their places may still be in progress.
    ARRIVED = auto()
    # Done was sent to it. Without checksums, all workers are sent Done in one step.
    TOLD = auto()
    # It answered that its hold lasted until Done.
    CONFIRMED = auto()
    # The transfer has failed, and something of it may still be written.
    LEAVING = auto()
    LEFT = auto()


class Event(IntEnum):
    """An event between a transfer and one prefill worker: a message of the worker, or an action of this side."""

    # Messages.
    CLAIMED = auto()
    OFFERED = auto()
    WRITTEN = auto()
    CONFIRMED = auto()
    STOPPED = auto()
    # All that comes from it was read, or nothing comes from it.
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
    """Return the kind of a message that its transfer's phase does not take: stale if too early, else duplicate."""
    early = all(phase < taking for taking, other in TRANSFER.table if other is event)
    return MessageKind.STALE if early else MessageKind.DUPLICATE
