"""Slots of states: what a link moves of all of them goes by one prepared list, as a request has one slot of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvplan.plan.types import Ints, Runs
from kvplan.runtime.transport.base import Index, PreparedList


@dataclass(frozen=True, slots=True)
class PreparedSlots:
    """The pages of states of several pairs of groups, prepared on both sides.

    Row n of the lists is of pair `pairs[of_row[n]]`, and `starts` (prefill, decode) are the numbers of the descriptors
    of its slot 0. `bytes` and `spans` are those of one slot of each pair, before neighbours were joined.
    """

    pairs: tuple[str, ...]
    of_row: Ints
    starts: tuple[Index, Index]
    bytes: int
    spans: int
    local: PreparedList
    remote: PreparedList

    def indices(self, runs: Mapping[str, Runs]) -> tuple[Index, Index] | None:
        """Descriptors (prefill, decode) for `runs` by pair; None unless they are one slot of each."""
        slots = [runs[pair] for pair in self.pairs]
        if any(len(one.count) != 1 for one in slots):
            return None
        prefill = np.concatenate([one.prefill_block for one in slots])
        decode = np.concatenate([one.decode_block for one in slots])
        return self._at(0, prefill), self._at(1, decode)

    def release(self) -> None:
        """Give the prepared lists back."""
        self.local.release()
        self.remote.release()

    def _at(self, side: int, slots: Ints) -> Index:
        return self.starts[side] + slots.astype(np.int32)[self.of_row]
