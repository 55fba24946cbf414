"""Transfers that are timed: one request for all, many short ones, a single block, slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvplan.cli.calibrate.pairs import TimedPair
from kvplan.cli.calibrate.peers import SECONDS, ServedPair, served

if TYPE_CHECKING:
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker, Peer, Request

# Slices that the first pair is cut into where slices are timed.
SLICES = 16


@dataclass(frozen=True, slots=True)
class MovedTransfer:
    """What one transfer moved, and how long it took from submit to done."""

    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TransferCase:
    """A sort of transfer: a decode worker that has met its peer, how many blocks it asks for, in how many slices."""

    name: str
    worker: DecodeWorker
    peer: Peer
    blocks: int
    slices: int
    clock: Callable[[], float]

    @property
    def mode(self) -> str:
        """Who moves the bytes: `pull` or `push`."""
        return self.peer.mode

    def run(self, turn: int) -> MovedTransfer:
        """Move a request that prefill holds for this turn. Raises TransferError."""
        wanted = _request(self.peer.plan, self.blocks, f"{self.name}-{turn}")
        began = self.clock()
        moved = self.worker.submit(wanted, SECONDS).wait()
        seconds = self.clock() - began
        return MovedTransfer(moved.requests, sum(part.expected for part in moved.parts), seconds)


@contextmanager
def connected(
    pairs: Sequence[TimedPair], mem_type: str, turns: int, clock: Callable[[], float]
) -> Iterator[list[TransferCase]]:
    """What there is to time by `clock`, each `turns` times, with the processes that it takes. Raises as `served`."""
    from kvplan.runtime import Limits

    sorts = [_sorts(number, pair) for number, pair in enumerate(pairs)]
    held = [tuple(f"{name}-{turn}" for name, _, _ in some for turn in range(turns)) for some in sorts]
    every = [ServedPair(pair.path, pair.blocks, names) for pair, names in zip(pairs, held, strict=True)]
    with served(every, mem_type) as readers:
        cases = []
        for number, pair in enumerate(pairs):
            for name, blocks, slices in sorts[number]:
                limits = Limits(slice_bytes=pair.bytes // slices) if slices > 1 else None
                cases.append(TransferCase(name, *readers.reader(number, limits), blocks, slices, clock))
        yield cases


def _sorts(number: int, pair: TimedPair) -> list[tuple[str, int, int]]:
    """What is timed of a pair, as (name, blocks, slices): of the first one a single block and slices, too."""
    whole = f"pair-{number}", pair.blocks, 1
    return [whole] if number else [whole, (f"block-{number}", 1, 1), (f"slices-{number}", pair.blocks, SLICES)]


def _request(plan: Plan, blocks: int, name: str) -> Request:
    """The first `blocks` blocks on both sides, in order."""
    from kvplan.runtime import Blocks, Request

    (group,) = plan.decode.groups
    tables = {group.name: Blocks(0, np.arange(blocks, dtype=np.int64))}
    return Request(name, (0, blocks * group.tokens), tables, tables)
