"""A cache's storage expression written out as it is for the tensors that the cache has."""

from __future__ import annotations

from dataclasses import replace

from kvplan.compiler.bound import BoundCache
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Item, Leaf, Pad, Repeat
from kvplan.dsl.lang.storage import leaves, written


def nests(cache: BoundCache) -> list[str]:
    """The storage expression of a cache with the tensors that it has; one text per allocation."""
    parts = [(name, written(_kept(items, cache))) for name, items in cache.storage.parts]
    return [f"{name}: {text}" if name else text for name, text in parts if text]


def _kept(items: tuple[Item, ...], cache: BoundCache) -> tuple[Item, ...]:
    """Items less tensors that the cache has not, and padding that is none."""
    kept = [item for item in items if _is_kept(item, cache)]
    return tuple(replace(item, body=_kept(item.body, cache)) if isinstance(item, Repeat) else item for item in kept)


def _is_kept(item: Item, cache: BoundCache) -> bool:
    if isinstance(item, Leaf | Repeat):
        return bool({leaf.tensor for leaf in leaves((item,))} & {tensor.name for tensor in cache.tensors})
    return evaluate(item.size, cache.env) != (0 if isinstance(item, Pad) else 1)
