"""The progress of a request in SGLang's numbers. Every SGLang process loads this, so it imports nothing of kvplan."""

from __future__ import annotations

from enum import IntEnum


class RoomState(IntEnum):
    """The progress of a request by the numbers of SGLang's KVPoll: ranks take the least of theirs."""

    FAILED = 0
    BOOTSTRAPPING = 1
    WAITING = 2
    TRANSFERRING = 3
    SUCCESS = 4
