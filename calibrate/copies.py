"""Copies within memory: rates by contiguous bytes, in the pattern of swapped heads and tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any

from kvplan.calibrate.memories import CalibratedMemory

# Bytes that are contiguous on both sides.
TOGETHER = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536)
TOKENS, HEADS = 16, 8
# Shorter spans are copied faster as items of 16 bytes, longer ones as rows of 8.
SHORT = 64


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """A copy of pages with heads first to pages with tokens first: views of one shape, and their bytes."""

    memory: CalibratedMemory
    target: Any
    source: Any
    bytes: int
    clock: Callable[[], float]

    def run(self) -> float:
        """Return bytes a second."""
        began = self.clock()
        self.memory.copy(self.target, self.source)
        return self.bytes / (self.clock() - began)


def timed_copies(
    memory: CalibratedMemory, size: int, clock: Callable[[], float] = perf_counter
) -> dict[int, TimedCopy]:
    """Return copies of `size` bytes, by contiguous bytes; lengths whose page exceeds `size` are left out."""
    source, target = memory.allocate(size), memory.allocate(size)
    lengths = (together for together in TOGETHER if _page(together) <= size)
    return {together: _transposed(memory, target, source, together, size, clock) for together in lengths}


def _page(together: int) -> int:
    return TOKENS * HEADS * together


def _transposed(
    memory: CalibratedMemory, target: Any, source: Any, together: int, size: int, clock: Callable[[], float]
) -> TimedCopy:
    item = min(together, 16 if together < SHORT else 8)
    span = together // item
    shape = size // _page(together), TOKENS, HEADS, span
    heads_first = TOKENS * HEADS * span, span, TOKENS * span, 1
    tokens_first = TOKENS * HEADS * span, HEADS * span, span, 1
    views = memory.view(target, item, shape, tokens_first), memory.view(source, item, shape, heads_first)
    return TimedCopy(memory, *views, prod(shape) * item, clock)
