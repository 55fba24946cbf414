"""The layout of objects: each has the pages of one block of a group, in some of its layers, plane after plane."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kvplan.plan import planes as names
from kvplan.plan.types import CONTEXT, Group, GroupPair, Interval, Plan, Side
from kvplan.store.errors import StoreKeyError, StoreSideError
from kvplan.store.header import VERSION

# The tokens of an object, by position in the request. A state has none.
Ranges = tuple[Interval, ...]
# The objects that a request needs, by group and position of the block.
Wanted = dict[str, dict[int, Ranges]]


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The planes, by number, whose pages make one object of a group, and the size of each page in bytes."""

    name: str
    planes: tuple[int, ...]
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """The stored side of a plan. `space` is part of all names, and separates objects that must not be confused."""

    side: Side
    tokens: int
    space: str
    planes: tuple[names.Plane, ...]
    parts: Mapping[str, tuple[StoredPart, ...]]

    def is_state(self, group: str) -> bool:
        return next(one for one in self.side.groups if one.name == group).store == "state"


def stored_layout(plan: Plan, role: str, revision: str, layers: int = 0) -> StoredLayout:
    """Return the layout of the `role` side of a plan, prefill or decode, in objects of `layers` layers, 0 for all.

    `revision` identifies the weights, and all else that decides a token's cache. Raises StoreSideError if the side
    cannot be stored because it has several workers, or blocks that tokens alone do not name. Raises StoreKeyError
    without a revision.
    """
    if not isinstance(revision, str) or not revision or not revision.isprintable():
        text = "say which weights these are, by a commit or a digest of them, in printable text"
        raise StoreKeyError(f"no revision, {revision!a:.40}: {text}")
    side: Side = getattr(plan, role)
    tokens = _block(side)
    # Models of one shape have one digest, whatever their weights are.
    told = VERSION, plan.model, plan.model_digest, side.digest, revision
    space = hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]
    planes = names.planes(side.workers[0])
    of_group = {
        group.name: [(number, plane) for number, plane in enumerate(planes) if plane.group == group.name]
        for group in side.groups
    }
    parts = {name: _parts(name, numbered, layers) for name, numbered in of_group.items()}
    return StoredLayout(side, tokens, space, planes, parts)


def wanted(pairs: Sequence[GroupPair], role: str, layout: StoredLayout, tokens: Interval) -> Wanted:
    """Return the objects that a reader of `tokens` needs for these pairs, and the tokens that it needs of each."""
    first, end = tokens
    found: Wanted = {}
    for pair in pairs if first < end else ():
        group: str = getattr(pair, role)
        positions = found.setdefault(group, {})
        if layout.is_state(group):
            positions[end // layout.tokens - 1] = ()
            continue
        for start, stop in pair.needs.ranges(first, end, pair.rows):
            for position in range(start // layout.tokens, -(-stop // layout.tokens)):
                block = position * layout.tokens, (position + 1) * layout.tokens
                inside = max(start, block[0]), min(stop, block[1])
                positions[position] = joined((*positions.get(position, ()), inside))
    return found


def joined(ranges: Sequence[Interval]) -> Ranges:
    """Return the same tokens in as few ranges as possible."""
    found: list[Interval] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            start, stop = found[-1][0], max(stop, found.pop()[1])
        found.append((start, stop))
    return tuple(found)


def covers(ranges: Sequence[Interval], asked: Sequence[Interval]) -> bool:
    """Return whether `ranges` contain all `asked` tokens."""
    return all(any(low <= start and stop <= high for low, high in ranges) for start, stop in asked)


def _block(side: Side) -> int:
    """Return the tokens of a block, which must be equal in all groups. Raises StoreSideError."""
    if len(side.workers) != 1:
        raise StoreSideError(f"{side.key} has {len(side.workers)} workers: only a side that is whole can be stored")
    for group in side.groups:
        _check_group(side, group)
        _check_caches(side, group)
    for one, other in combinations(side.groups, 2):
        if one.overlays(other):
            raise _unfit(f"groups {one.name!r} and {other.name!r} of {side.key} share memory, and each block is of one")
    blocks = {group.tokens for group in side.groups if group.store != "state"}
    if len(blocks) != 1:
        raise StoreSideError(f"{side.key} has blocks of {sorted(blocks)} tokens: what is stored has one size of blocks")
    return blocks.pop()


def _check_group(side: Side, group: Group) -> None:
    if group.ring or group.shards > 1 or group.ratio > 1 or group.length != CONTEXT:
        text = "has a ring, blocks that are shared out or split, or tokens of another length"
        raise _unfit(f"group {group.name!r} of {side.key} {text}")


def _check_caches(side: Side, group: Group) -> None:
    """Raises StoreSideError if a group has several caches: an object's tokens could not be told apart by cache."""
    caches = sorted({planes.cache for planes in side.workers[0].planes if planes.group == group.name})
    if len(caches) > 1:
        text = f"has blocks of {' and '.join(caches)}, and a store keeps each cache by itself"
        raise _unfit(f"group {group.name!r} of {side.key} {text}")


def _unfit(why: str) -> StoreSideError:
    return StoreSideError(f"{why}: compile a side that is made to be stored")


def _parts(group: str, planes: Sequence[tuple[int, names.Plane]], layers: int) -> tuple[StoredPart, ...]:
    """Return a group's planes in parts of `layers` layers each. Planes without a layer hold all of them."""
    if not layers:
        return (_part(group, planes),)
    runs: dict[int, list[tuple[int, names.Plane]]] = {}
    # A layer may have several planes whose numbers are not adjacent.
    for number, plane in planes:
        runs.setdefault((plane.layer or 0) // layers, []).append((number, plane))
    # Names contain the number of layers, so that objects with other numbers differ.
    return tuple(_part(f"{group}.{run * layers}+{layers}", found) for run, found in sorted(runs.items()))


def _part(name: str, planes: Sequence[tuple[int, names.Plane]]) -> StoredPart:
    return StoredPart(name, tuple(n for n, _ in planes), tuple(plane.page for _, plane in planes))
