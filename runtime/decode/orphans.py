"""What failed requests leave behind: blocks that may still be written, until nothing can write them any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.messages import Leave
from kvplan.runtime.decode.peer import PrefillConnection
from kvplan.runtime.decode.quarantine import BlockLedger, Written
from kvplan.runtime.transfer.executor import Slice

PROBE = 0.1


@dataclass(slots=True, eq=False)
class Orphan:
    """Blocks of a request that ended without being done: reads of them under way, and workers that may write them.

    `unsaid` are those of the writers that could not be told yet that it is given up.
    """

    request: str
    written: Written
    pieces: list[Slice]
    writers: list[PrefillConnection]
    unsaid: list[PrefillConnection]


class Orphans:
    """All orphans of one decode worker. `lost` says whether the transport has lost a peer."""

    def __init__(self, ledger: BlockLedger, lost: Callable[[str], bool]) -> None:
        self._ledger, self._lost, self._all = ledger, lost, list[Orphan]()
        self._probe = float("-inf")

    def add(self, orphan: Orphan) -> None:
        """Take blocks into quarantine."""
        self._ledger.quarantine(orphan.written)
        self._all.append(orphan)

    def awaits(self, request: str) -> bool:
        """Whether a worker that was asked to write a request of this id has not said that it stopped."""
        return any(orphan.request == request and orphan.writers for orphan in self._all)

    def stopped(self, request: str, member: PrefillConnection) -> bool:
        """A worker writes a request no more; False where nobody waits for that."""
        found = [one for one in self._all if one.request == request and member in one.writers]
        for orphan in found:
            orphan.writers.remove(member)
        return bool(found)

    def follow(self, members: Mapping[int, PrefillConnection]) -> None:
        """These workers are spoken to anew: what they may still write for others of before is given up again."""
        for orphan in self._all:
            for old in list(orphan.writers):
                new = members.get(old.worker)
                if new is not None and new is not old and new.peer == old.peer:
                    orphan.writers[orphan.writers.index(old)] = new
                    orphan.unsaid = [one for one in orphan.unsaid if one is not old] + [new]

    def bury(self, peer: str) -> None:
        """The caller knows that the process of this peer has ended: what it wrote, it has written."""
        for orphan in self._all:
            orphan.writers = [member for member in orphan.writers if member.peer != peer]

    def busy(self) -> set[str]:
        """The peers that something is still under way from."""
        reads = {piece.link.peer for orphan in self._all for piece in orphan.pieces}
        return reads | {member.peer for orphan in self._all for member in orphan.writers}

    def sweep(self, now: float) -> None:
        """Free the blocks that nothing writes any more."""
        if not self._all:
            return
        if now >= self._probe + PROBE:
            self._probe = now
            for peer in {member.peer for orphan in self._all for member in orphan.writers}:
                if self._gone(peer):
                    self.bury(peer)
        for orphan in self._all:
            orphan.unsaid = [
                one for one in orphan.unsaid if one in orphan.writers and not one.line.send(Leave(orphan.request, True))
            ]
            for piece in [piece for piece in orphan.pieces if piece.settled()]:
                orphan.pieces.remove(piece)
                piece.mover.buried(piece)
        for orphan in [one for one in self._all if not one.pieces and not one.writers]:
            self._ledger.free(orphan.written)
        self._all = [one for one in self._all if one.pieces or one.writers]

    def _gone(self, peer: str) -> bool:
        """Whether the transport has lost a peer; one that cannot tell has not."""
        try:
            return self._lost(peer)
        except KvplanError:
            return False

    def abandon(self) -> None:
        """After the transport is closed: nothing is under way any more."""
        for orphan in self._all:
            self._ledger.free(orphan.written)
        self._all = []
