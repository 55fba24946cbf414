"""Loads: what the transfer of a request of any length is for each pair of workers, by the cost model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kvplan.compiler.cost.links import LinkLoad, link_loads
from kvplan.dsl.model import MachineProfile
from kvplan.plan.types import Plan

# Lengths that are counted span by span; between two of them, and beyond the last, loads grow along a line.
LENGTHS = (64, 256, 1024, 4096, 16384)
STRATEGIES = {"pull": "unpack", "push": "pack"}
Loads = tuple[LinkLoad, ...]


@dataclass(frozen=True)
class TransferLoads:
    """The loads of all links of a plan by tokens; `count` counts those of one length, which is done once."""

    count: Callable[[int], Loads]
    _counted: dict[int, Loads] = field(default_factory=dict)

    def of(self, tokens: int) -> Loads:
        """What moves of a request of which `tokens` tokens are to be moved, states included."""
        at = bisect_left(LENGTHS, tokens)
        if at < len(LENGTHS) and LENGTHS[at] == tokens:
            return self._at(tokens)
        low, high = LENGTHS[max(0, min(at, len(LENGTHS) - 1) - 1)], LENGTHS[max(1, min(at, len(LENGTHS) - 1))]
        share = (tokens - low) / (high - low)
        both = zip(self._at(low), self._at(high), strict=True)
        return tuple(_between(short, long, share) for short, long in both)

    def _at(self, tokens: int) -> Loads:
        if tokens not in self._counted:
            self._counted[tokens] = self.count(tokens)
        return self._counted[tokens]


def loads_of(plan: Plan, profile: MachineProfile, mode: str) -> TransferLoads:
    """The loads of a plan whose bytes are read by decode (`pull`) or written by prefill (`push`)."""
    return TransferLoads(partial(link_loads, plan, profile, STRATEGIES[mode]))


def _between(low: LinkLoad, high: LinkLoad, share: float) -> LinkLoad:
    """The load `share` of the way from one to the other, none of its numbers below 0."""
    requests, size, copied = (
        max(0.0, a + share * (b - a))
        for a, b in ((low.requests, high.requests), (low.bytes, high.bytes), (low.copy_us, high.copy_us))
    )
    return LinkLoad(low.prefill, low.decode, requests, size, copied)
