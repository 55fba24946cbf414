"""Group faulty bytes with one cause, and describe the first byte of each group.

Wrong bytes form one group if they have the same decode worker, needed tensor, held tensor, and distance between both
coordinates; other faulty bytes if they have the same decode worker and tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kvplan.compiler.check.audit.verdict import Finding
from kvplan.compiler.check.labels import NOT_DATA, Atlas, LabelRegion, Labels, Mask, region_of, words

BYTE = "byte"
Sort = tuple[object, ...]


@dataclass(slots=True)
class FaultGroup:
    """A group of faulty bytes; `at` is the first one's (plane in the order of planes, byte in the plane)."""

    at: tuple[int, int]
    finding: Callable[[int], Finding]
    bytes: int = 0


@dataclass(slots=True)
class Findings:
    """Groups of faults as they are found: at most `limit`, and always the first of every fault."""

    regions: Atlas
    limit: int
    counts: Counter[str] = field(default_factory=Counter)
    groups: dict[Sort, FaultGroup] = field(default_factory=dict)
    listed: int = 0

    def add(self, sort: Sort, at: tuple[int, int], count: int, finding: Callable[[int], Finding]) -> None:
        """Count `count` bytes of a group, whose key begins with the fault; the first byte is at `at`."""
        if sort not in self.groups and not self.room(str(sort[0])):
            return
        group = self.groups.setdefault(sort, FaultGroup(at, finding))
        group.bytes += count
        self.listed += count

    def room(self, fault: str) -> bool:
        """Whether a new group of a fault is still listed."""
        return len(self.groups) < self.limit or not any(sort[0] == fault for sort in self.groups)

    def result(self) -> tuple[tuple[Finding, ...], int]:
        """Return the findings in the order of their first bytes, and the number of bytes in none of them."""
        groups = sorted(self.groups.values(), key=lambda group: group.at)
        return tuple(group.finding(group.bytes) for group in groups), sum(self.counts.values()) - self.listed


@dataclass(frozen=True, slots=True)
class PageRun:
    """Consecutive pages of one decode plane: the plane's number, its blocks `ids`, and the labels they should hold."""

    worker: int
    plane: str
    number: int
    ids: Labels
    page: int
    stride: int
    full: Labels

    def offset(self, spot: int) -> int:
        """Return the place in the plane of byte `spot`, counted over all these pages."""
        return int(self.ids[spot // self.page]) * self.stride + spot % self.page


def add_fault(found: Findings, place: PageRun, fault: str, bad: Mask, tail: str) -> None:
    """Add the bytes of a mask over pages, tensor by tensor; `tail` is the fault in words."""
    spots = np.flatnonzero(bad)
    found.counts[fault] += len(spots)
    numbers = _numbers(found.regions, place.full.reshape(-1)[spots])
    for number in np.unique(numbers).tolist():
        mine = spots[numbers == number]
        _add(found, place, (fault, place.worker, number), int(mine[0]), len(mine), tail)


def add_wrong(found: Findings, place: PageRun, bad: Mask, holds: Labels) -> None:
    """Add the wrong bytes of a mask over pages with the labels `holds`, by the distance from the right coordinate."""
    spots = np.flatnonzero(bad)
    found.counts["wrong"] += len(spots)
    needed, held = place.full.reshape(-1)[spots], holds.reshape(-1)[spots]
    pairs = np.stack([_numbers(found.regions, needed), _numbers(found.regions, held)])
    for pair in np.unique(pairs, axis=1).T.tolist():
        mine = (pairs[0] == pair[0]) & (pairs[1] == pair[1])
        ways = _ways(found.regions, needed[mine], held[mine])
        _by_way(found, place, ("wrong", place.worker, *pair), spots[mine], held[mine], ways)


def _by_way(found: Findings, place: PageRun, sort: Sort, spots: Labels, held: Labels, ways: Labels) -> None:
    """Add bytes of one pair of tensors, distance by distance, in order of their first bytes."""
    way, first, count = np.unique(ways, return_index=True, return_counts=True)
    known = [number for number, w in enumerate(way.tolist()) if (*sort, w) in found.groups]
    for number in dict.fromkeys([*known, *np.argsort(first)[: found.limit + 1].tolist()]):
        spot = int(first[number])
        tail = f"holds {held_words(found.regions, _label(place, int(spots[spot])), int(held[spot]))}"
        _add(found, place, (*sort, int(way[number])), int(spots[spot]), int(count[number]), tail)


def _label(place: PageRun, spot: int) -> int:
    return int(place.full.reshape(-1)[spot])


def _add(found: Findings, place: PageRun, sort: Sort, spot: int, count: int, tail: str) -> None:
    offset, label = place.offset(spot), _label(place, spot)
    what = words(found.regions, label) if label >= 0 else f"plane {place.plane} · offset {offset:,} · padding"
    text = f"{what}: {tail}"
    fault, worker, plane = str(sort[0]), place.worker, place.plane
    found.add(sort, (place.number, offset), count, lambda n: Finding(fault, worker, plane, offset, text, n))


def _numbers(regions: Atlas, labels: Labels) -> Labels:
    """Return the number of every label's region in the atlas; labels that are not data stay."""
    bases = np.array([region.base for region in regions.values()], np.int64)
    return np.where(labels < 0, labels, np.searchsorted(bases, labels, "right") - 1)


def _ways(regions: Atlas, needed: Labels, held: Labels) -> Labels:
    """Return one number per distance between coordinates, over their common axes, for bytes of one pair of tensors."""
    if not len(held) or held[0] < 0:
        return np.zeros(len(held), np.int64)
    here, there = region_of(regions, int(needed[0])), region_of(regions, int(held[0]))
    start, end = indices(here, needed), indices(there, held)
    way = np.zeros(len(held), np.int64)
    for axis in _common(here, there):
        extent = max(dict(zip((*r.axes, BYTE), r.shape, strict=True))[axis] for r in (here, there))
        way = way * (2 * extent + 1) + end[axis] - start[axis]
    return way


def _common(here: LabelRegion, there: LabelRegion) -> list[str]:
    """Return the axes that describe a distance: all if both regions have equal axes, otherwise layer and token."""
    if set(here.axes) != set(there.axes):
        return [axis for axis in here.axes if axis in there.axes and axis in ("layer", "token")]
    return [*here.axes, *([BYTE] if here.shape[-1] == there.shape[-1] else [])]


def indices(region: LabelRegion, labels: Labels) -> Mapping[str, Labels]:
    """Return the coordinates of labels of one region, by axis, including the byte of the element."""
    return dict(zip((*region.axes, BYTE), np.unravel_index(labels - region.base, region.shape), strict=True))


def held_words(regions: Atlas, needed: int, held: int) -> str:
    """Describe the byte that is held in place of another: only the differences if they are few."""
    if held < 0:
        return NOT_DATA[held]
    here, there = region_of(regions, needed), region_of(regions, held)
    start, end = ({a: int(i) for a, i in indices(r, np.array(n)).items()} for r, n in ((here, needed), (there, held)))
    if here is there:
        return "the same of " + " · ".join(f"{axis} {n}" for axis, n in end.items() if n != start[axis])
    inner = [f"{axis} {n}" for axis, n in end.items() if axis not in ("layer", BYTE)]
    layer = "the same layer" if end["layer"] == start["layer"] else f"layer {end['layer']}"
    return f"{there.cache}.{there.tensor} {' · '.join(inner)} of {layer}"
