"""The part of one prefill worker in a transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.runtime.decode.peer import PrefillConnection
    from kvplan.runtime.transfer.chunks import ChunkCover
    from kvplan.runtime.transfer.executor import TransferExecutor

PHASES = ("claiming", "moving", "moved", "told", "kept")


@dataclass(slots=True, eq=False, weakref_slot=True)
class PeerProgress:
    """How far one prefill worker is with a request.

    `phase` is claiming (until it says that it holds the request), moving, moved (every byte from it is there), told
    (that nothing more is needed), kept (it held the request until now). `hold` is the number of the hold that was
    claimed, `beat` that of the first claim: answers to earlier ones are not to this transfer. `expected` are the bytes
    that come from it, as the plan has them; `wanted` says that it was asked to write.
    """

    member: PrefillConnection
    expected: int
    phase: str = "claiming"
    hold: int = -1
    heartbeat: int = 0
    mover: TransferExecutor | None = None
    cover: ChunkCover | None = None
    offers: int = 0
    wanted: bool = False

    def past(self, phase: str) -> bool:
        """Whether this phase, or a later one, is reached."""
        return PHASES.index(self.phase) >= PHASES.index(phase)

    @property
    def arrived(self) -> int:
        """Bytes that are there."""
        if self.mover is not None:
            return self.mover.moved
        return self.expected if self.past("moved") else 0

    @property
    def progress(self) -> float:
        if self.past("moved"):
            return 1.0
        return self.arrived / self.expected if self.expected else 0.0

    @property
    def requests(self) -> int:
        return 0 if self.mover is None else self.mover.requests

    @property
    def posted(self) -> int | None:
        return 0 if self.mover is None else self.mover.posted
