"""Timed transfers: one descriptor, many short ones, a single block at once and after a pause, slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvplan.calibrate.fit import TimedTransfer
from kvplan.calibrate.pairs import TimedPair
from kvplan.calibrate.peers import SECONDS, ServedPair, served
from kvplan.compiler.cost.profile import COLD_AFTER

if TYPE_CHECKING:
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker, Peer, Request

# The number of slices of the first pair when slices are timed.
SLICES = 16


@dataclass(frozen=True, slots=True)
class TransferSort:
    """A kind of timed transfers: how many blocks in how many slices, after an idle `pause` in seconds."""

    name: str
    blocks: int
    slices: int = 1
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class TransferCase:
    """A kind of transfer, and the decode worker that asks for each, which has met its peer."""

    sort: TransferSort
    worker: DecodeWorker
    peer: Peer
    clock: Callable[[], float]

    def run(self, turn: int) -> TimedTransfer:
        """Move a request that prefill holds for this turn. Raises TransferError."""
        wanted = _request(self.peer.plan, self.sort.blocks, f"{self.sort.name}-{turn}")
        # Predicted before, because a worker that does not post itself knows no count. Every slice takes at least one.
        descriptors = max(self.sort.slices, sum(self.worker.predict(wanted).values()))
        time.sleep(self.sort.pause)
        began = self.clock()
        moved = self.worker.submit(wanted, SECONDS).wait()
        seconds = self.clock() - began
        size = sum(part.expected for part in moved.parts)
        return TimedTransfer(self.sort.slices, descriptors, size, seconds, cold=self.sort.pause > 0)


@contextmanager
def connected(
    pairs: Sequence[TimedPair], mem_type: str, turns: int, clock: Callable[[], float]
) -> Iterator[list[TransferCase]]:
    """Yield the cases to time by `clock`, each `turns` times, with their processes. Raises as `served`."""
    from kvplan.runtime import Limits

    sorts = _sorts(pairs)
    held = [tuple(f"{sort.name}-{turn}" for sort in some for turn in range(turns)) for some in sorts]
    every = [ServedPair(pair.path, pair.blocks, names) for pair, names in zip(pairs, held, strict=True)]
    with served(every, mem_type) as readers:
        cases = []
        for number, pair in enumerate(pairs):
            for sort in sorts[number]:
                limits = Limits(slice_bytes=pair.bytes // sort.slices) if sort.slices > 1 else None
                cases.append(TransferCase(sort, *readers.reader(number, limits), clock))
        yield cases


def _sorts(pairs: Sequence[TimedPair]) -> list[list[TransferSort]]:
    """Return the kinds per pair: all of it; for the first one also a block and slices, for the last one a cold block.

    The last one's blocks are of many requests, as those of caches are: their memory is cold, too.
    """
    sorts = [[TransferSort(f"pair-{number}", pair.blocks)] for number, pair in enumerate(pairs)]
    sorts[0] += [TransferSort("block", 1), TransferSort("slices", pairs[0].blocks, SLICES)]
    sorts[-1].append(TransferSort("cold", 1, pause=10 * COLD_AFTER))
    return sorts


def _request(plan: Plan, blocks: int, name: str) -> Request:
    """Return a request of the first `blocks` blocks on both sides, in order."""
    from kvplan.runtime import Blocks, Request

    (group,) = plan.decode.groups
    tables = {group.name: Blocks(0, np.arange(blocks, dtype=np.int64))}
    return Request(name, (0, blocks * group.tokens), tables, tables)
