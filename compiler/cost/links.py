"""The load of each pair of workers for one request of any length, by one strategy: descriptors, bytes, copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvplan.compiler.cost.cost import ends_of
from kvplan.compiler.cost.profile import wire_us
from kvplan.compiler.cost.strategy import by_strategy, costs
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.plan.types import Plan


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The load of one decode worker from one prefill worker for a request, including states.

    `descriptors` and `bytes` are those on the wire, `copy_us` is the time of copies between a stage and a pool.
    """

    prefill: int
    decode: int
    descriptors: float
    bytes: float
    copy_us: float


def link_loads(plan: Plan, profile: MachineProfile, strategy: str, tokens: int) -> tuple[LinkLoad, ...]:
    """Return the load of every link for a request of `tokens` tokens from token 0; `strategy` as in `by_strategy`.

    No two logical blocks are adjacent, as everywhere in costs.
    """
    links: dict[tuple[int, int], list[LinkLoad]] = {}
    for load in _read_loads(plan, profile, strategy, tokens):
        links.setdefault((load.prefill, load.decode), []).append(load)
    return tuple(added(loads) for _, loads in sorted(links.items()))


def _read_loads(plan: Plan, profile: MachineProfile, strategy: str, tokens: int) -> Iterator[LinkLoad]:
    ends = ends_of(plan, tokens)
    for worker, reads in enumerate(plan.reads):
        for read in reads:
            way = by_strategy(costs(read.table, ends(worker, read), profile), strategy)
            copy_us = way.us - wire_us(profile, way.descriptors, way.bytes)
            yield LinkLoad(read.worker, worker, way.descriptors, way.bytes, copy_us)


def added(loads: Sequence[LinkLoad]) -> LinkLoad:
    """Add up several loads, under the two workers of the first."""
    descriptors, size, copied = (
        sum(getattr(load, name) for load in loads) for name in ("descriptors", "bytes", "copy_us")
    )
    return LinkLoad(loads[0].prefill, loads[0].decode, descriptors, size, copied)
