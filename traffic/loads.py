"""Loads: the transfer of a request of any length for each pair of workers, by the cost model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from kvplan.compiler.cost.links import LinkLoad, link_loads
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.plan.types import Plan

# Lengths that are counted span by span; between two of them, and beyond the last, loads grow linearly.
LENGTHS = (64, 256, 1024, 4096, 16384)
STRATEGIES = {"pull": "unpack", "push": "pack"}
Loads = tuple[LinkLoad, ...]


@dataclass(frozen=True)
class TransferLoads:
    """The loads of all links of a plan by tokens; `count` counts those of one length, once each.

    A last block of `block` tokens that is partly filled moves by rows of tokens, not as a page: it has other
    descriptors.
    """

    count: Callable[[int], Loads]
    block: int = 1
    _counted: dict[int, Loads] = field(default_factory=dict)

    def of(self, tokens: int) -> Loads:
        """Return the load of a request with `tokens` tokens to move, including states."""
        if tokens in LENGTHS:
            return self._at(tokens)
        line = self._line(tokens)
        if tokens % self.block == 0:
            return line
        more = zip(line, self._partial(), strict=True)
        return tuple(replace(load, descriptors=max(0.0, load.descriptors + descriptors)) for load, descriptors in more)

    def _line(self, tokens: int) -> Loads:
        at = bisect_left(LENGTHS, tokens)
        low, high = LENGTHS[max(0, min(at, len(LENGTHS) - 1) - 1)], LENGTHS[max(1, min(at, len(LENGTHS) - 1))]
        share = (tokens - low) / (high - low)
        both = zip(self._at(low), self._at(high), strict=True)
        return tuple(_between(short, long, share) for short, long in both)

    def _partial(self) -> Iterator[float]:
        """Yield by link how many more descriptors a half-filled last block takes than half of a whole one."""
        whole = LENGTHS[0], LENGTHS[0] + self.block
        for low, half, high in zip(*map(self._at, (whole[0], sum(whole) // 2, whole[1])), strict=True):
            yield half.descriptors - (low.descriptors + high.descriptors) / 2

    def _at(self, tokens: int) -> Loads:
        if tokens not in self._counted:
            self._counted[tokens] = self.count(tokens)
        return self._counted[tokens]


def loads_of(plan: Plan, profile: MachineProfile, mode: str) -> TransferLoads:
    """Return the loads of a plan whose bytes decode reads (`pull`) or prefill writes (`push`)."""
    return TransferLoads(partial(link_loads, plan, profile, STRATEGIES[mode]), _block(plan))


def _block(plan: Plan) -> int:
    """Return the tokens of the smallest block on either side; 1 if these do not divide LENGTHS: then lines cover it."""
    groups = (group for side in (plan.prefill, plan.decode) for group in side.groups)
    smallest = min((group.kernel for group in groups if group.store == "tokens"), default=1)
    return 1 if LENGTHS[0] % smallest else smallest


def _between(low: LinkLoad, high: LinkLoad, share: float) -> LinkLoad:
    """Return the load `share` of the way from one to the other, with no number below 0."""
    descriptors, size, copied = (
        max(0.0, a + share * (b - a))
        for a, b in ((low.descriptors, high.descriptors), (low.bytes, high.bytes), (low.copy_us, high.copy_us))
    )
    return LinkLoad(low.prefill, low.decode, descriptors, size, copied)
