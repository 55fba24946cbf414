"""How far a request is, in SGLang's numbers. Every SGLang process loads this, so it imports nothing of kvplan."""

from __future__ import annotations

from enum import IntEnum


class RoomState(IntEnum):
    """How far a request is, by the numbers of SGLang's KVPoll: ranks take the least of theirs."""

    FAILED = 0
    BOOTSTRAPPING = 1
    WAITING = 2
    TRANSFERRING = 3
    SUCCESS = 4
