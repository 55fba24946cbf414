"""Which decode blocks are being written, or may still be: none of them is written for anyone else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kvplan.plan.types import Ints, Side
from kvplan.runtime.errors import QuarantinedError

FREE, BUSY, QUARANTINED = 0, 1, 2
Written = Mapping[str, Ints]


class BlockLedger:
    """The state of every logical block of a pool, by arena. `Written` are block ids by group."""

    def __init__(self, side: Side, blocks: Mapping[str, int]) -> None:
        self._arena = {group.name: group.arena for group in side.groups}
        sizes: dict[int, int] = {}
        for name, count in blocks.items():
            sizes[self._arena[name]] = max(sizes.get(self._arena[name], 0), count)
        self._state: dict[int, npt.NDArray[np.uint8]] = {a: np.zeros(count, np.uint8) for a, count in sizes.items()}

    def take(self, written: Written) -> None:
        """Mark blocks as being written. Raises QuarantinedError, and marks none, where one is not free."""
        for group, ids in written.items():
            state = self._state[self._arena[group]][ids]
            if state.any():
                block, kind = ids[state.argmax()], "in quarantine" if state.max() == QUARANTINED else "being written"
                advice = (
                    "use others until its transfer ends, or close this worker"
                    if state.max() == QUARANTINED
                    else "wait for its transfer"
                )
                raise QuarantinedError(f"decode block {block} of group {group!r} is {kind}: {advice}")
        self._set(written, BUSY)

    def free(self, written: Written) -> None:
        self._set(written, FREE)

    def quarantine(self, written: Written) -> None:
        self._set(written, QUARANTINED)

    def quarantined(self) -> dict[int, tuple[int, ...]]:
        """Block ids in quarantine, by arena."""
        found = {arena: np.flatnonzero(state == QUARANTINED) for arena, state in self._state.items()}
        return {arena: tuple(ids.tolist()) for arena, ids in found.items() if ids.size}

    def count(self, arena: int) -> int:
        """How many blocks of an arena are in quarantine."""
        return int((self._state[arena] == QUARANTINED).sum())

    def _set(self, written: Written, state: int) -> None:
        for group, ids in written.items():
            self._state[self._arena[group]][ids] = state
