"""Both engines of a pair with all their memory, filled by naive indexing from one content, and digests of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from math import prod

import numpy as np
from tests.end_to_end.memory import Memory, allocate, ids_of, regions_of, stamp
from tests.runtime.helpers.sides import added, of_side

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import Atlas, Labels, NeededTokens, paged, paint, table_of
from kvplan.compiler.check.oracle import OraclePlane
from kvplan.plan.request import Request
from kvplan.plan.types import Needs, Plan
from kvplan.runtime.checksum import checksum
from kvplan.runtime.checksum.checksum import Sample, Sums
from kvplan.runtime.memory.register import Pool, views

ROLES = ("prefill", "decode")
EVERY = Sample()


@dataclass(frozen=True, slots=True)
class Engines:
    """Memory and pools of all workers by role; `asked` is the runtime's form of `request`."""

    plan: Plan
    request: Request
    asked: Request
    memory: Mapping[str, list[Memory]]
    pools: Mapping[str, list[Pool]]

    def read(self, prefill: int, decode: int, role: str, sample: Sample = EVERY) -> Sums:
        worker = prefill if role == "prefill" else decode
        return checksum.of_read(self.plan, prefill, decode, role, self.pools[role][worker], self.asked, sample)

    def links(self) -> list[tuple[int, int]]:
        """Every prefill worker and decode worker that reads from it."""
        return sorted({(read.worker, d) for d, reads in enumerate(self.plan.reads) for read in reads})

    def side(self, role: str, sample: Sample = EVERY) -> Sums:
        """The digests of a whole engine, of caches that both sides have."""
        tables, needs = getattr(self.asked, role), needs_of(self.plan)
        shares = [
            of_side(pool, tables, self.asked.tokens, self.asked.lengths, needs, sample) for pool in self.pools[role]
        ]
        return {key: value for key, value in added(*shares).items() if key[0] in needs}


def needs_of(plan: Plan) -> dict[str, Needs]:
    """The needed tokens of every cache that a plan moves."""
    pairs = {pair.name: pair.needs for pair in plan.group_pairs}
    return {read.cache: pairs[read.groups] for reads in plan.reads for read in reads}


def engines(plan: Plan, sides: tuple[BoundSide, BoundSide], request: Request) -> Engines:
    """Both engines with the content of `request` in its tables on either side, and something else elsewhere."""
    regions = regions_of(sides, [request])
    memory: dict[str, list[Memory]] = {}
    pools: dict[str, list[Pool]] = {}
    for role, side, garbage in zip(ROLES, sides, (0x33, 0x77), strict=True):
        tables = getattr(request, role)
        memory[role] = [allocate(side, n, ids_of(tables), garbage) for n in range(len(side.workers))]
        for each in memory[role]:
            stamp(each, regions, tables)
        pools[role] = [views(getattr(plan, role), n, each.planes) for n, each in enumerate(memory[role])]
    return Engines(plan, request, asked(request), memory, pools)


def asked(request: Request) -> Request:
    """The request under the name that the engines know."""
    return replace(request, id="r")


@dataclass(frozen=True, slots=True)
class Spot:
    """A byte of a worker's memory that a request needs, and whose it is."""

    plane: str
    block: int
    byte: int
    cache: str
    layer: int
    token: int | None


def spots(made: Engines, sides: tuple[BoundSide, BoundSide], role: str, worker: int) -> list[Spot]:
    """One byte that a request needs of every tensor of every plane and block."""
    found = []
    regions = regions_of(sides, [made.request])
    for plane, block, labels in _pages(made, role, worker, regions):
        for region in (r for r in regions.values() if r.cache == plane.cache):
            inside = np.flatnonzero((labels >= region.base) & (labels < region.base + prod(region.shape)))
            if inside.size:
                byte = int(inside[(block * 7 + 3) % inside.size])
                at = dict(zip(region.axes, np.unravel_index(labels[byte] - region.base, region.shape), strict=False))
                token = next((int(at[axis]) for axis in at if axis.startswith("token")), None)
                found.append(Spot(plane.name, block, byte, plane.cache, int(at["layer"]), token))
    return found


def unneeded(made: Engines, sides: tuple[BoundSide, BoundSide], role: str, worker: int) -> list[Labels]:
    """By allocation of a worker's memory, where a request needs nothing."""
    memory, regions = made.memory[role][worker], regions_of(sides, [made.request])
    marked = allocate(memory.side, worker, memory.ids, 0)
    for plane, block, labels in _pages(made, role, worker, regions):
        marked.planes[plane.name][block] |= labels >= 0
    return [np.flatnonzero(one == 0) for one in marked.allocations]


def _pages(made: Engines, role: str, worker: int, regions: Atlas) -> Iterator[tuple[OraclePlane, int, Labels]]:
    memory, tables, needs = made.memory[role][worker], getattr(made.request, role), needs_of(made.plan)
    for plane in (p for p in memory.stored.values() if p.cache in needs):
        pages = paged(memory.side, memory.side.workers[worker], plane.group, table_of(tables, plane.group))
        want = NeededTokens(needs[plane.cache], *made.request.range_of(plane.group))
        if pages.ids.size:
            yield from zip(repeat(plane), pages.ids.tolist(), paint(plane, regions, pages.token, want), strict=False)
