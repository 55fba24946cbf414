"""NIXL by hand between two processes: the times of writes and reads, by bytes and by descriptors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.raw import Raw
from kvplan.bench.report import Row
from kvplan.bench.sample import WARMUP, clock

if TYPE_CHECKING:
    from kvplan.demo.processes import WorkerPipe

AREA = "NIXL by hand"
SECONDS, SMALL, MANY = 30.0, 64 << 10, 4096


@dataclass(frozen=True, slots=True)
class BareCase:
    """A transfer of `bytes` bytes in `descriptors` descriptors of one size, by an `op` of NIXL's: WRITE or READ."""

    op: str
    bytes: int
    descriptors: int

    @property
    def name(self) -> str:
        size = f"{self.bytes >> 20} MiB" if self.bytes >> 20 else f"{self.bytes >> 10} KiB"
        return f"{self.op.lower()} {size}, {self.descriptors} descriptor{'s' if self.descriptors > 1 else ''}"


def cases(size: int) -> tuple[BareCase, ...]:
    """Return the cases for `size` bytes: few and all as one, and all in pieces."""
    each = [BareCase(op, some, 1) for op in ("WRITE", "READ") for some in (min(SMALL, size), size)]
    return (*each, BareCase("WRITE", size, MANY))


def rows(mem_type: str, pairs: int, size: int) -> list[Row]:
    """Return the median microseconds of every case over `pairs` turns, in memory of the type VRAM or DRAM."""
    with _met(mem_type, size) as (raw, card):
        return [_row(case, _timed(raw, card, case, pairs)) for case in cases(size)]


def _row(case: BareCase, seconds: list[float]) -> Row:
    took = median(seconds)
    details: dict[str, object] = {"seconds": took, "bytes": case.bytes, "descriptors": case.descriptors}
    spread = f"{1e6 * min(seconds):.0f}..{1e6 * max(seconds):.0f}"
    return Row(AREA, case.name, f"{1e6 * took:.0f} us", spread=spread, pairs=len(seconds), details=details)


def _timed(raw: Raw, card: tuple[bytes, int], case: BareCase, pairs: int) -> list[float]:
    raw.meet(card, case.bytes // case.descriptors)
    # In random order, because NIXL joins adjacent ones.
    chosen = [np.random.default_rng(1).permutation(case.descriptors).astype(np.int32)]
    move: Callable[..., None] = raw.write if case.op == "WRITE" else raw.read
    return [clock(lambda: move(chosen)) for _ in range(WARMUP + pairs)][WARMUP:]


@contextmanager
def _met(mem_type: str, size: int) -> Iterator[tuple[Raw, tuple[bytes, int]]]:
    """Yield this process's agent over `size` bytes, and another's card. Raises NixlMissingError, BadInput (S031)."""
    from kvplan.calibrate.memories import memory_of
    from kvplan.demo.processes import Processes
    from kvplan.runtime.transport.nixl import api

    with Processes() as crew:
        member = crew.start("bare", serve, mem_type, size)
        memory = memory_of(mem_type).noise(size)
        yield Raw(api(), "bare-here", memory), member.hear(time.monotonic() + SECONDS)


def serve(line: WorkerPipe, mem_type: str, size: int) -> None:
    """Poll the other process's memory until the parent ends."""
    from kvplan.calibrate.memories import memory_of
    from kvplan.runtime.transport.nixl import api

    raw = Raw(api(), "bare-there", memory_of(mem_type).allocate(size))
    line.say(raw.card())
    while not line.waiting():
        raw.poll()
