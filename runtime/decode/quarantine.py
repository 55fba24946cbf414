"""Quarantine: decode blocks that are being written, or may still be, are handed to nobody else.

A block of a failed transfer is free again when nothing can write it any more, and not before: each read of it is done,
or its connection lost, each prefill worker that was asked to write it has said that it stopped, or is gone, and no copy
from a stage is being made. That is
epoch-based reclamation's rule (K. Fraser, Practical lock-freedom, 2004): what others may still reach is
retired at once, and used again only after a proof that none of them can reach it. Time is no proof, but of one thing:
of a connection that broke nobody says when the last byte of it has landed. It `lingers`, for as long as the transport
says, while this side polls.

A connection of the transport that broke does not tell that its peer is gone: it may go on to write by others. It is
gone where it cannot be spoken to, either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from kvplan.plan import planes as names
from kvplan.plan.types import Side
from kvplan.runtime.clock import counted
from kvplan.runtime.control.messages import Leave
from kvplan.runtime.decode.engines import PrefillConnection
from kvplan.runtime.decode.phases import Event, Phase
from kvplan.runtime.decode.transfer import PeerProgress, Transfer, WrittenBlocks
from kvplan.runtime.errors import QuarantinedError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.transport.base import Transport, is_lost

FREE, BUSY, QUARANTINED = 0, 1, 2
# Seconds between two questions to the transport whether it has lost a peer.
PROBE = 0.1
# Seconds between two questions to a prefill worker whether it has stopped.
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
        """Raises QuarantinedError where a block is not free."""
        for group, ids in written.items():
            state = self._state[self._arena[group]][ids]
            if state.any():
                raise QuarantinedError(f"decode block {ids[state.argmax()]} of group {group!r} {_why(state.max())}")

    def take(self, written: WrittenBlocks) -> None:
        """Mark blocks as being written. Raises QuarantinedError, and marks none, where one is not free."""
        self.check(written)
        self._set(written, BUSY)

    def free(self, written: WrittenBlocks) -> None:
        self._set(written, FREE)

    def quarantine(self, written: WrittenBlocks) -> None:
        self._set(written, QUARANTINED)

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Block ids in quarantine, by arena."""
        by_arena = {arena: np.flatnonzero(state == QUARANTINED) for arena, state in self._state.items()}
        return {arena: tuple(ids.tolist()) for arena, ids in by_arena.items() if ids.size}

    def written(self) -> frozenset[tuple[int, int]]:
        """The blocks (arena, number) of transfers that are under way."""
        found = ((arena, np.flatnonzero(state == BUSY)) for arena, state in self._state.items())
        return frozenset((arena, block) for arena, ids in found for block in ids.tolist())

    def count(self, arena: int) -> int:
        """How many blocks of an arena are in quarantine."""
        return int((self._state[arena] == QUARANTINED).sum())

    def _set(self, written: WrittenBlocks, state: int) -> None:
        for group, ids in written.items():
            self._state[self._arena[group]][ids] = state


class Quarantine:
    """Transfers of one decode worker that failed, until nothing of them can be written any more.

    The transport says whether it has lost a peer, and for how long bytes of that may land afterwards.
    """

    def __init__(self, ledger: BlockLedger, transport: Transport) -> None:
        self.ledger, self._transport = ledger, transport
        # Transfers in order; a worker may ask for each of thousands whether it is among them.
        self._transfers: dict[Transfer, None] = {}
        self._probed = self._swept = self._asked = float("-inf")

    def __iter__(self) -> Iterator[Transfer]:
        return iter(list(self._transfers))

    def add(self, transfer: Transfer) -> None:
        """Take the blocks of a transfer that has just failed into quarantine."""
        self.ledger.quarantine(transfer.written)
        self._transfers[transfer] = None

    def keeps(self, transfer: Transfer) -> bool:
        """Whether anything of a failed transfer may still be written."""
        return transfer in self._transfers

    def writes(self, request: str) -> bool:
        """Whether a worker that was asked to write a request of this id has not said that it stopped."""
        return any(transfer.request.id == request for transfer, _ in self._writers())

    def stopped(self, request: str, connection: PrefillConnection, lost: bool) -> bool:
        """A worker writes a request no more; False where nobody waits for that. It may linger where it was `lost`."""
        same = [part for transfer, part in self._writers() if transfer.request.id == request]
        stopped = [part for part in same if part.connection is connection]
        for part in stopped:
            if lost or connection.control.broken() is not None:
                self._linger(part)
            else:
                part.stopped()
        return bool(stopped)

    def follow(self, connections: Mapping[int, PrefillConnection]) -> None:
        """These workers are spoken to anew: what they may still write for others of before is given up again."""
        for _, part in self._writers():
            new = connections.get(part.connection.worker)
            if new is not None and new is not part.connection and new.peer == part.connection.peer:
                part.connection, part.unsaid, part.lingers = new, True, None

    def bury(self, peers: Collection[str]) -> None:
        """The processes of these peers have ended: what they wrote, they have written, or it lingers."""
        for _, part in self._writers():
            if part.connection.peer in peers:
                self._linger(part)

    def busy(self) -> set[str]:
        """The peers that something is still under way from."""
        reads = {slice_.link.peer for transfer in self._transfers for part in transfer.parts for slice_ in part.slices}
        return reads | {part.connection.peer for _, part in self._writers()}

    def sweep(self, now: float) -> None:
        """Free the blocks that nothing writes any more. It is called once a round of who polls."""
        if not self._transfers:
            self._swept = now
            return
        self._outlast(now)
        self._probe(now)
        for transfer in self._transfers:
            for part in transfer.parts:
                _settle(transfer, part)
        for transfer in [transfer for transfer in self._transfers if _left(transfer)]:
            self.ledger.free(transfer.written)
            del self._transfers[transfer]

    def abandon(self) -> None:
        """After the transport is closed: nothing is under way any more."""
        for transfer in self._transfers:
            self.ledger.free(transfer.written)
        self._transfers = {}

    def _probe(self, now: float) -> None:
        """Look, now and then, for writers that no word reaches, and that the transport has lost: they are gone.

        The others are asked again, seldom, whether they have stopped: who was suspended, or forgot this worker, has.
        """
        if now < self._probed + PROBE:
            return
        self._probed = now
        ask = now >= self._asked + ASK
        self._asked = now if ask else self._asked
        for transfer, part in [(transfer, part) for transfer, part in self._writers() if part.lingers is None]:
            control = part.connection.control
            if control.broken() is not None and is_lost(self._transport, part.connection.peer):
                self._linger(part)
            elif ask and not (part.unsaid or control.behind):
                control.send(Leave(transfer.request.id))

    def _linger(self, part: PeerProgress) -> None:
        """Nothing is sent any more for a part, and what was sent may still land."""
        if part.lingers is None:
            part.lingers, part.unsaid = self._transport.lingers, False

    def _outlast(self, now: float) -> None:
        """Count what lingers down, by rounds: what sockets have lands while this side polls."""
        passed, self._swept = counted(now, self._swept), now
        for _, part in self._writers():
            if part.lingers is not None:
                part.lingers -= passed
                if part.lingers <= 0:
                    part.stopped()

    def _writers(self) -> list[tuple[Transfer, PeerProgress]]:
        """The parts whose prefill workers may still write."""
        return [(transfer, part) for transfer in self._transfers for part in transfer.parts if part.writes]


def _left(transfer: Transfer) -> bool:
    return all(part.phase is Phase.LEFT for part in transfer.parts)


def _settle(transfer: Transfer, part: PeerProgress) -> None:
    """Say again what could not be said, close the slices that are over, and leave when nothing is left."""
    if part.unsaid and part.connection.control.send(Leave(transfer.request.id, alone=True)):
        part.unsaid = False
    for slice_ in [slice_ for slice_ in part.slices if slice_.settled()]:
        part.slices.remove(slice_)
        slice_.executor.close(slice_)
    part.unpacks.settle(part.writes)
    if part.phase is Phase.LEAVING and not (part.slices or part.writes or part.unpacks):
        part.on(Event.SETTLED)


def _why(state: int) -> str:
    if state == QUARANTINED:
        return "is in quarantine: use others until its transfer ends, or close this worker"
    return "is being written: wait for its transfer"


def block_bytes(pool: Pool) -> dict[int, int]:
    """Bytes of one logical block (or slot) by arena, that of its largest group."""
    groups = {group.name: group for group in pool.side.groups}
    sizes: dict[str, int] = {}
    for plane in names.planes(pool.side.workers[pool.worker]):
        sizes[plane.group] = sizes.get(plane.group, 0) + plane.stride * groups[plane.group].ratio
    found: dict[int, int] = {}
    for name, size in sizes.items():
        found[groups[name].arena] = max(size, found.get(groups[name].arena, 0))
    return found
