"""Quarantine: keeps decode blocks from other requests while they are being written, or may still be.

A block of a failed request is free again only when nothing can write it any more: each read of it is done or its
connection lost, each prefill worker that was asked to write it has said that it stopped or is lost, and no copy from a
stage is in progress. This is the rule of epoch-based reclamation (K. Fraser, Practical lock-freedom, 2004): retire at
once what others may still reach, and use it again only after a proof that none of them can. Time is the proof in one
case only: no message says when the last byte of a broken connection has landed. Such bytes linger for as long as the
transport says, while this side polls.

A broken connection of the transport does not prove that its peer is lost: the peer may write through another one. It
is lost if control messages do not reach it, either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Side
from kvplan.runtime.clock import counted
from kvplan.runtime.control.messages import Leave
from kvplan.runtime.errors import QuarantinedError
from kvplan.runtime.protocol.effects import Send
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer, WrittenBlocks
from kvplan.runtime.protocol.phases import Event, Phase

FREE, BUSY, QUARANTINED = 0, 1, 2
# Seconds between two requests to a prefill worker to confirm that it has stopped.
ASK = 1.0


class BlockLedger:
    """The state of every logical block of a pool, by arena."""

    def __init__(self, side: Side, blocks: Mapping[str, int]) -> None:
        self._arena = {group.name: group.arena for group in side.groups}
        sizes: dict[int, int] = {}
        for name, count in blocks.items():
            sizes[self._arena[name]] = max(sizes.get(self._arena[name], 0), count)
        self._state: dict[int, npt.NDArray[np.uint8]] = {a: np.zeros(count, np.uint8) for a, count in sizes.items()}

    def check(self, written: WrittenBlocks) -> None:
        """Check that all blocks are free. Raises QuarantinedError."""
        for group, ids in written.items():
            state = self._state[self._arena[group]][ids]
            if state.any():
                raise QuarantinedError(f"decode block {ids[state.argmax()]} of group {group!r} {_why(state.max())}")

    def take(self, written: WrittenBlocks) -> None:
        """Mark blocks as being written. Raises QuarantinedError, and marks none, if one is not free."""
        self.check(written)
        self._set(written, BUSY)

    def free(self, written: WrittenBlocks) -> None:
        self._set(written, FREE)

    def quarantine(self, written: WrittenBlocks) -> None:
        self._set(written, QUARANTINED)

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Return the block ids in quarantine, by arena."""
        by_arena = {arena: np.flatnonzero(state == QUARANTINED) for arena, state in self._state.items()}
        return {arena: tuple(ids.tolist()) for arena, ids in by_arena.items() if ids.size}

    def written(self) -> frozenset[tuple[int, int]]:
        """Return the blocks (arena, number) of requests that are in progress."""
        found = ((arena, np.flatnonzero(state == BUSY)) for arena, state in self._state.items())
        return frozenset((arena, block) for arena, ids in found for block in ids.tolist())

    def count(self, arena: int) -> int:
        """Return how many blocks of an arena are in quarantine."""
        return int((self._state[arena] == QUARANTINED).sum())

    def _set(self, written: WrittenBlocks, state: int) -> None:
        for group, ids in written.items():
            self._state[self._arena[group]][ids] = state


def _why(state: int) -> str:
    if state == QUARANTINED:
        return "is in quarantine: use others until its transfer ends, or close this worker"
    return "is being written: wait for its transfer"


class Quarantine:
    """The failed requests of one decode worker whose blocks may still be written.

    Bytes of a broken connection may land for `linger_s` seconds.
    """

    def __init__(self, ledger: BlockLedger, linger_s: float) -> None:
        self.ledger, self._linger_s = ledger, linger_s
        # A dict, because it keeps the order and `keeps` may be called for thousands of loads.
        self._loads: dict[Load, None] = {}
        self._swept = self._left_at = float("-inf")

    def __iter__(self) -> Iterator[Load]:
        return iter(list(self._loads))

    def __len__(self) -> int:
        return len(self._loads)

    def add(self, load: Load) -> None:
        """Take the blocks of a request that has just failed into quarantine."""
        self.ledger.quarantine(load.written)
        self._loads[load] = None

    def keeps(self, load: Load) -> bool:
        """Return whether anything of a failed request may still be written."""
        return load in self._loads

    def writes(self, request: str) -> bool:
        """Return whether a worker that was asked to write a request of this id may still write it."""
        return any(load.request.id == request for load, _ in self._writers())

    def stopped(self, request: str, peer: PrefillPeer, lost: bool) -> bool:
        """Note that a worker stopped writing a request; if `lost`, bytes linger. Returns False if no load waits."""
        same = [part for load, part in self._writers() if load.request.id == request]
        stopped = [part for part in same if part.peer is peer]
        for part in stopped:
            if lost:
                self._linger(part)
            else:
                part.stopped()
        return bool(stopped)

    def leave_unsent(self, peer: PrefillPeer, message: Leave) -> None:
        """Note that a Leave could not be sent to a worker: it is sent again in `sweep`."""
        for load, part in self._writers():
            if part.peer is peer and load.request.id == message.request:
                part.leave_unsent = True

    def follow(self, engine: KnownEngine) -> None:
        """Send a Leave again to the workers of an engine that is connected again, for all that they may still write."""
        peers = {(peer.worker, peer.name): peer for peer in engine.peers}
        for _, part in self._writers():
            new = peers.get((part.peer.worker, part.peer.name))
            if new is not None and new is not part.peer:
                part.peer, part.leave_unsent, part.linger_s = new, True, None

    def gone(self, peers: Collection[PrefillPeer]) -> None:
        """Note that these workers are lost and send nothing more: bytes that they sent may linger."""
        for _, part in self._writers():
            if part.peer in peers:
                self._linger(part)

    def bury(self, names: Collection[str]) -> None:
        """Do what `gone` does for the peers of these names in the transport: their processes have ended."""
        self.gone({part.peer for _, part in self._writers() if part.peer.name in names})

    def writers(self) -> frozenset[PrefillPeer]:
        """Return the workers that may still write and are not known to be lost."""
        return frozenset(part.peer for _, part in self._writers() if part.linger_s is None)

    def busy(self) -> set[str]:
        """Return the transport's names of the peers that transfers are still in progress from."""
        parts = (part for load in self._loads for part in load.parts)
        return {part.peer.name for part in parts if part.writes or not part.settled}

    def sweep(self, now: float) -> list[Send]:
        """Free the blocks that nothing writes any more. Called once a step. Returns the messages to send."""
        if not self._loads:
            self._swept = now
            return []
        self._outlast(now)
        said = [*self._unsent_leaves(), *self._reminders(now)]
        for part in (part for load in self for part in load.parts):
            if part.phase is Phase.LEAVING and part.settled and not part.writes:
                part.on(Event.SETTLED)
        for load in [load for load in self if all(part.phase is Phase.LEFT for part in load.parts)]:
            self.ledger.free(load.written)
            del self._loads[load]
        return said

    def abandon(self) -> None:
        """Free all blocks. Call it after the transport is closed, when nothing is in progress any more."""
        for load in self._loads:
            self.ledger.free(load.written)
        self._loads = {}

    def _unsent_leaves(self) -> Iterator[Send]:
        """Send again each Leave that could not be sent."""
        for load, part in self._writers():
            if part.leave_unsent:
                part.leave_unsent = False
                yield Send(part.peer, Leave(load.request.id, alone=True))

    def _reminders(self, now: float) -> Iterator[Send]:
        """Send writers a Leave every ASK seconds, so that one that was suspended or forgot this worker answers."""
        if now < self._left_at + ASK:
            return
        self._left_at = now
        for load, part in self._writers():
            if part.linger_s is None and not part.leave_unsent:
                yield Send(part.peer, Leave(load.request.id), droppable=True)

    def _linger(self, part: LoadPart) -> None:
        """Begin to count down: nothing more is sent for a part, but what was sent may still land."""
        if part.linger_s is None:
            part.linger_s, part.leave_unsent = self._linger_s, False

    def _outlast(self, now: float) -> None:
        """Count lingering parts down, by time in which this side polled: only then do bytes in sockets land."""
        passed, self._swept = counted(now, self._swept), now
        for _, part in self._writers():
            if part.linger_s is not None:
                part.linger_s -= passed
                if part.linger_s <= 0:
                    part.stopped()

    def _writers(self) -> list[tuple[Load, LoadPart]]:
        """Return the parts whose prefill workers may still write, and their loads."""
        return [(load, part) for load in self._loads for part in load.parts if part.writes]
