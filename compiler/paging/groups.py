"""Form groups of layers (block tables) by a few named algorithms that know no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

from kvplan.compiler.bound import BoundCache, BoundGroup, Members
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.paging.packing import Layers, packed
from kvplan.compiler.paging.pool import ONE, PACKED, PagePool
from kvplan.compiler.side.text import nearest
from kvplan.dsl.lang.storage import layers_inside
from kvplan.dsl.schema.engine import GroupRules
from kvplan.dsl.text.grouped import grouped

Bucket = tuple[BoundCache, ...]
# Caches that share tables, and the layers of each of their groups.
Split = tuple[Bucket, list[Layers]]
# The property that the caches of a bucket share.
Key = Callable[[BoundCache], object]
T = TypeVar("T")
BY_RETENTION = "by_retention"
NO_POOLS: Mapping[str, PagePool] = MappingProxyType({})


def form(
    rule: GroupRules,
    caches: Sequence[BoundCache],
    pools: Mapping[str, PagePool] = NO_POOLS,
    stored: Sequence[Members] = (),
) -> tuple[BoundGroup, ...]:
    """Form the groups of a side, named by their caches (`a+b`), and numbered if one bucket's layers need several.

    Caches in different memories never share blocks: each memory has its own entry in `pools`.
    `stored` are the members of the engine's own groups if `rule` is another one: layers that share a block still do,
    and several names for one table of the engine are marked as such.
    """
    groups: list[BoundGroup] = []
    memories = grouped((cache.memory, cache) for cache in caches)
    splits = [split for memory, some in memories.items() for split in _splits(rule, some, pools.get(memory))]
    arenas = {memory: number for number, memory in enumerate(memories)}
    for bucket, parts in [(bucket, _as_stored(bucket, parts, stored)) for bucket, parts in splits]:
        name = "+".join(cache.name for cache in bucket)
        for index, part in enumerate(parts):
            label = f"{name}.{index}" if len(parts) > 1 else name
            arena = arenas[bucket[0].memory] if rule.overlay == "true" else len(groups)
            groups.append(_group(label, bucket, part, arena))
    names = [group.name for group in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput("S019", f"two groups would be called {twice[0]!r}", "name the caches without dots and numbers")
    return _with_tables(groups, stored)


def _as_stored(bucket: Bucket, parts: list[Layers], stored: Sequence[Members]) -> list[Layers]:
    """Return a bucket's parts; the engine's own if blocks hold several layers, which no other table can separate."""
    names = {cache.name for cache in bucket if layers_inside(cache.storage)}
    if not stored or not names:
        return parts
    mine = [[member for member in members if member[0] in {cache.name for cache in bucket}] for members in stored]
    return [members for members in mine if members]


def _with_tables(groups: Sequence[BoundGroup], stored: Sequence[Members]) -> tuple[BoundGroup, ...]:
    """Give one table name to all groups with layers of the same group of the engine."""
    owned = [{n for n, members in enumerate(stored) if {*group.members} & {*members}} for group in groups]
    tables: list[set[int]] = []
    for own in owned:
        apart = [table for table in tables if not table & own]
        tables = [*apart, own.union(*(table for table in tables if table & own))]
    names = ["+".join(g.name for g, own in zip(groups, owned, strict=True) if own & table) for table in tables]
    found = dict(zip(map(frozenset, tables), names, strict=True))
    return tuple(replace(group, table=_table(group, own, found)) for group, own in zip(groups, owned, strict=True))


def _table(group: BoundGroup, own: set[int], names: Mapping[frozenset[int], str]) -> str:
    """Return the name of a group's table if other groups have the same table."""
    name = next((name for table, name in names.items() if table & own), "")
    return "" if name == group.name else name


def _group(name: str, bucket: Bucket, members: Layers, arena: int) -> BoundGroup:
    cache = bucket[0]
    if len({_paging_key(each) for each in bucket}) > 1:
        said = f"{' and '.join(each.name for each in bucket)} would share a block table, with different blocks or rings"
        raise Refused("C114", said, "correct the engine's rules for blocks and rings")
    ratio = cache.tokens // cache.kernel if cache.kernel else 1
    length, ring = cache.length, cache.ring
    return BoundGroup(name, cache.store, tuple(members), cache.tokens, cache.kernel, ratio, arena, length, ring)


def _splits(rule: GroupRules, caches: Sequence[BoundCache], pool: PagePool | None) -> list[Split]:
    buckets = _buckets(caches, _choose(FORMS, "group form", rule.form))
    assign = _choose(ASSIGN, "group assignment", rule.assign)
    reaching = pool if rule.form == BY_RETENTION else None
    if reaching and reaching.way == PACKED:
        paged = {cache.name: cache for cache in caches}
        return [(tuple(paged[cache.name] for cache in lot), parts) for lot, parts in packed(reaching.entries)]
    if reaching and reaching.way == ONE:
        return [(bucket, [_members(bucket)]) for bucket in _buckets(caches, _paging_key)]
    if rule.form not in (BY_RETENTION, "by_page"):
        return [(bucket, assign(_members(bucket), 1, 0)) for bucket in buckets]
    size = _group_size(rule, buckets)
    every = [(bucket, _members(bucket)) for bucket in buckets]
    return [(bucket, assign(members, -(-len(members) // size), size)) for bucket, members in every]


def _members(bucket: Bucket) -> Layers:
    return sorted(((c.name, n) for c in bucket for n in c.layers), key=lambda member: member[1])


def _group_size(rule: GroupRules, buckets: Sequence[Bucket]) -> int:
    """Return the layers per group: the smallest bucket, or the largest if it is below `stretch` times the smallest."""
    lengths = [sum(len(cache.layers) for cache in bucket) for bucket in buckets]
    over, under = rule.stretch
    return max(lengths) if max(lengths) * under < min(lengths) * over else min(lengths)


def _buckets(caches: Sequence[BoundCache], key: Key) -> list[Bucket]:
    """Return the buckets of caches with equal keys; each bucket shares a table."""
    return [tuple(alike) for alike in grouped((key(cache), cache) for cache in caches).values()]


def _paging_key(cache: BoundCache) -> tuple[object, ...]:
    """Return a key that is equal for caches whose blocks hold the same tokens, of any size."""
    return cache.store, cache.tokens, cache.kernel, cache.length, cache.ring


def _storage_key(cache: BoundCache) -> tuple[object, ...]:
    """Return a key that is equal for caches that store the same thing per layer."""
    return cache.kind, cache.tensors, cache.needs, *_paging_key(cache)


def _strided(members: Layers, parts: int, size: int) -> list[Layers]:
    return [members[index::parts] for index in range(parts)]


def _blocked(members: Layers, parts: int, size: int) -> list[Layers]:
    return [members] if parts == 1 else [members[i * size : (i + 1) * size] for i in range(parts)]


FORMS: Mapping[str, Key] = {
    "by_page": _storage_key,
    "by_cache": attrgetter("name"),
    "by_tokens": _paging_key,
    BY_RETENTION: _storage_key,
}
ASSIGN = {"strided": _strided, "blocked": _blocked}


def _choose(table: Mapping[str, T], what: str, name: str) -> T:
    if name not in table:
        raise BadInput("S006", f"unknown {what} {name!r}", nearest(name, sorted(table)))
    return table[name]
