"""The pages of a side's caches whose blocks come from one pool of ids.
Law: afterwards all caches share one group, or all pages have the same bytes, or pages lie side by side in a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import Refused

ONE, PACKED, ALIKE = "one", "packed", "alike"


@dataclass(frozen=True, slots=True)
class PooledCache:
    """A cache before pages are made equal: the `tokens` of its block (0: a state), the bytes of a layer's page.

    A `rigid` page can hold more tokens, but no padding.
    """

    cache: BoundCache
    tokens: int
    page: int
    rigid: bool = False


@dataclass(frozen=True, slots=True)
class PagePool:
    """`way` says how caches share blocks; `page` is the bytes of every page, 0 if each keeps its own.

    Caches in `promoted` keep the blocks of all tokens, even of unneeded ones, and take `tokens` per block.
    """

    way: str
    entries: tuple[PooledCache, ...]
    page: int = 0
    promoted: frozenset[str] = frozenset()


def reach(entry: PooledCache) -> tuple[object, ...]:
    """Return a key that is equal for caches that always need equally many blocks; a state's key has its page bytes."""
    cache = entry.cache
    if cache.store != "tokens":
        return cache.store, entry.page
    return cache.length, entry.tokens, cache.needs.keep, cache.needs.chunk, cache.ring


def pooled(entries: Sequence[PooledCache], inside: bool) -> PagePool:
    """Return the pool of a side; `inside`: layers lie inside blocks. Raises Refused (C138)."""
    pages = {entry.page for entry in entries}
    if len({reach(entry) for entry in entries}) <= 1:
        return PagePool(ONE, tuple(entries))
    if inside and len(pages) > 1:
        return PagePool(PACKED, tuple(entries))
    if any(entry.rigid and max(pages) % entry.page for entry in entries):
        return _with_promoted(entries)
    return PagePool(ALIKE, tuple(entries), max(pages))


def _with_promoted(entries: Sequence[PooledCache]) -> PagePool:
    """Put everything into one group in which windows keep all their blocks, because pages cannot be made equal."""
    full = {entry.tokens for entry in entries if entry.cache.store == "tokens" and not _is_local(entry)}
    local = [entry for entry in entries if _is_local(entry)]
    tokens = next(iter(full)) if len(full) == 1 else None
    kept = [replace(entry, tokens=tokens or entry.tokens) if entry in local else entry for entry in entries]
    alike = {(e.cache.store, e.cache.length, e.tokens) for e in kept}
    if not full or len(alike) > 1 or any(entry.rigid or entry.cache.needs.chunk for entry in local):
        raise _unequal_pages(entries)
    return PagePool(ONE, tuple(kept), 0, frozenset(entry.cache.name for entry in local))


def _is_local(entry: PooledCache) -> bool:
    return entry.cache.needs.keep is not None or bool(entry.cache.needs.chunk)


def _unequal_pages(entries: Sequence[PooledCache]) -> Refused:
    largest = max(entries, key=lambda entry: entry.page)
    stuck = next(entry for entry in entries if entry.rigid and largest.page % entry.page)
    said = (
        f"a page of {stuck.cache.name!r} has {stuck.page} B, which do not divide the {largest.page} B of"
        f" {largest.cache.name!r}, and may not be padded"
    )
    return Refused("C138", said, "choose blocks whose pages divide each other, or an order with layers inside blocks")
