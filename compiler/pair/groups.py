"""Pairs of groups of the two sides that have layers in common and move them by one rule."""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import GroupPair

# The (cache, tensor)s of every pair.
GroupPairs = dict[GroupPair, tuple[tuple[str, str], ...]]


def pair_groups(prefill: BoundSide, decode: BoundSide) -> GroupPairs:
    """Return all pairs by decode group, then prefill group; sides that `check_pair` allows have at least one.

    Each has the (cache, tensor)s in both groups with the same needs and as many tokens in a row.
    """
    places = grouped((member, place) for place, group in enumerate(prefill.groups) for member in group.members)
    met: GroupPairs = {}
    for ours in decode.groups:
        near = {place for member in ours.members for place in places.get(member, ())}
        for place in sorted(near):
            met |= _meet(prefill.groups[place], ours, decode)
    return met


def _meet(theirs: BoundGroup, ours: BoundGroup, decode: BoundSide) -> GroupPairs:
    """Return one pair, or one for each kind of tensor if the caches have different needs."""
    both = set(theirs.members) & set(ours.members)
    caches = [cache for cache in decode.caches if any(name == cache.name for name, _ in both)]
    sorts = grouped(((c.needs, tensor.tokens_per_row), (c.name, tensor.name)) for c in caches for tensor in c.tensors)
    name = ours.name if ours.name == theirs.name else f"{theirs.name}>{ours.name}"
    page = ours.kernel if ours.kernel == theirs.kernel else 0
    names = {
        key: name if len(sorts) == 1 else f"{name}:{_label(found, caches, key[1])}" for key, found in sorts.items()
    }
    return {
        GroupPair(names[needs, rows], theirs.name, ours.name, page // rows, needs, rows): tuple(found)
        for (needs, rows), found in sorts.items()
    }


def _label(found: list[tuple[str, str]], caches: list[BoundCache], rows: int) -> str:
    """Return the caches of one kind, with the tokens of a row if a cache has rows of several sizes."""
    mine = [cache for cache in caches if any(name == cache.name for name, _ in found)]
    mixed = any(len({tensor.tokens_per_row for tensor in cache.tensors}) > 1 for cache in mine)
    return "+".join(cache.name for cache in mine) + (f"/{rows}" if mixed else "")
