"""All of a calibration: transfers and copies in turns, each figure the median of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from kvplan.calibrate.copies import TimedCopy, timed_copies
from kvplan.calibrate.fit import TimedTransfer, TransferRates, fitted
from kvplan.calibrate.memories import memory_of
from kvplan.calibrate.pairs import compiled
from kvplan.calibrate.transfers import TransferCase, connected

WARMUP = 2
Watch = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The results: the costs of transfers, and bytes a second of copies by contiguous bytes.

    `mode` says which side moved the bytes of transfers: `pull` or `push`.
    """

    rates: TransferRates
    copies: dict[int, float]
    mode: str


def calibrated(
    mem_type: str, rounds: int, size: int, watch: Watch, clock: Callable[[], float] = perf_counter
) -> Calibration:
    """Measure memory of the type DRAM or VRAM, at most `size` bytes in one transfer; `watch` wraps the rounds.

    Seconds are those of `clock`. Raises NixlMissingError, BadInput (S031), ProcessError and TransferError.
    """
    with TemporaryDirectory() as folder:
        pairs = compiled(Path(folder), size)
        with connected(pairs, mem_type, WARMUP + rounds, clock) as cases:
            return _in_turns(cases, timed_copies(memory_of(mem_type), size, clock), rounds, watch)


def _in_turns(cases: list[TransferCase], copies: dict[int, TimedCopy], rounds: int, watch: Watch) -> Calibration:
    for turn in range(WARMUP):
        _ = [case.run(turn) for case in cases], [copy.run() for copy in copies.values()]
    moved: list[list[TimedTransfer]] = [[] for _ in cases]
    rates: dict[int, list[float]] = {together: [] for together in copies}
    for turn in watch(range(WARMUP, WARMUP + rounds)):
        for case, runs in zip(cases, moved, strict=True):
            runs.append(case.run(turn))
        for together, copy in copies.items():
            rates[together].append(copy.run())
    timed = [replace(runs[0], seconds=median(run.seconds for run in runs)) for runs in moved]
    copied = {together: median(turns) for together, turns in rates.items()}
    return Calibration(fitted(timed), copied, cases[0].peer.mode)
