"""Ledger: which decode blocks are free, being written, or in quarantine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Side
from kvplan.runtime.errors import QuarantinedError
from kvplan.runtime.protocol.loads import WrittenBlocks

FREE, BUSY, QUARANTINED = 0, 1, 2


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
        """The blocks (arena, number) of requests that are under way."""
        found = ((arena, np.flatnonzero(state == BUSY)) for arena, state in self._state.items())
        return frozenset((arena, block) for arena, ids in found for block in ids.tolist())

    def count(self, arena: int) -> int:
        """How many blocks of an arena are in quarantine."""
        return int((self._state[arena] == QUARANTINED).sum())

    def _set(self, written: WrittenBlocks, state: int) -> None:
        for group, ids in written.items():
            self._state[self._arena[group]][ids] = state


def _why(state: int) -> str:
    if state == QUARANTINED:
        return "is in quarantine: use others until its transfer ends, or close this worker"
    return "is being written: wait for its transfer"
