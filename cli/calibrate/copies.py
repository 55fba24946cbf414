"""Copies within memory: rates by how many bytes lie together, as where heads and tokens change places."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any

from kvplan.cli.calibrate.memories import WORD, CalibratedMemory

# Bytes that lie together on both sides.
TOGETHER = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536)
TOKENS, HEADS = 16, 8


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """Pages with heads first that are copied to pages with tokens first: views of one shape, and their bytes."""

    memory: CalibratedMemory
    target: Any
    source: Any
    bytes: int

    def run(self) -> float:
        """Bytes a second."""
        began = perf_counter()
        self.memory.copy(self.target, self.source)
        return self.bytes / (perf_counter() - began)


def timed_copies(memory: CalibratedMemory, size: int) -> dict[int, TimedCopy]:
    """Copies of `size` bytes, by those that lie together; none where not even a page of them is so small."""
    source, target = memory.allocate(size), memory.allocate(size)
    lengths = (together for together in TOGETHER if _page(together) <= size)
    return {together: _transposed(memory, target, source, together, size) for together in lengths}


def _page(together: int) -> int:
    return TOKENS * HEADS * together


def _transposed(memory: CalibratedMemory, target: Any, source: Any, together: int, size: int) -> TimedCopy:
    page = _page(together)
    shape = size // page, TOKENS, HEADS, together // WORD
    heads_first = page, together, TOKENS * together, WORD
    tokens_first = page, HEADS * together, together, WORD
    views = memory.words(target, shape, tokens_first), memory.words(source, shape, heads_first)
    return TimedCopy(memory, *views, prod(shape) * WORD)
