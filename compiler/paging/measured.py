"""Values that an engine's expressions may use about a side's caches before paging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from kvplan.compiler.bound import BoundCache, BoundSide, BoundWorker, Members
from kvplan.compiler.placement.place import layer_bytes, local_sizes
from kvplan.compiler.placement.shards import shard_intervals
from kvplan.compiler.side.options import Env

OWN_BLOCK, ACCEPTED = "own_block", "accepted"
# The parameter by which an engine distinguishes caches that store the same.
TELL_APART = "tell_apart"


def distinct_workers(side: BoundSide) -> tuple[BoundWorker, ...]:
    """Return one worker for every set of holdings."""
    tensors = [tensor for cache in side.caches for tensor in cache.tensors]
    found = {str([[b - a for a, b in shard_intervals(side, t, w).values()] for t in tensors]): w for w in side.workers}
    return tuple(found.values())


def of_side(side: BoundSide, workers: Sequence[BoundWorker]) -> Env:
    """Return values of a side: bytes per token of the widest layer, the largest state, counts of caches."""
    states = [cache for cache in side.caches if cache.store != "tokens"]
    largest = max((page(side, workers, cache, 0) for cache in states), default=0)
    whole = sum(not is_split(cache) for cache in side.caches if cache.store == "tokens")
    return {"states": len(states), "largest_state": largest, "unsplit": whole, "bytes_per_token": widest(side, workers)}


def of_cache(side: BoundSide, workers: Sequence[BoundWorker], cache: BoundCache | None) -> Env:
    """Return values of the paged cache. A state or None is paged by a token of the widest cache."""
    whose = {"kind": cache.kind if cache else "", "store": cache.store if cache else "tokens"}
    if cache is None or cache.store != "tokens":
        wide = widest(side, workers)
        return {"token_bytes": wide, "window": 0, "chunk": 0, "ring": 0, "own_block": 0, **whose}
    own = cache.env.get(OWN_BLOCK, 0)
    return {
        "token_bytes": row_bytes(side, workers, cache), "chunk": cache.needs.chunk or 0, "ring": cache.ring,
        "window": 0 if cache.needs.keep is None else cache.needs.keep + 1,
        "own_block": own if isinstance(own, int) else 0, **whose,
    }  # fmt: skip


def of_groups(side: BoundSide) -> Env:
    """Return values known once layers form groups: the most caches that share one, and how many are mingled."""
    most = max((len({cache for cache, _ in members}) for members in side.block_members), default=0)
    return {"together": most, "mingled": sum(_mingled(side, members) for members in side.block_members)}


def _mingled(side: BoundSide, members: Members) -> int:
    """Count token caches with layers between those of another cache that stores the same and is not distinguished."""
    paged = [cache for cache in side.caches if cache.store == "tokens"]
    stored = {cache.name: (cache.kind, cache.tensors, cache.env.get(TELL_APART)) for cache in paged}
    runs: dict[object, list[str]] = {}
    for cache, _ in (member for member in members if member[0] in stored):
        seen = runs.setdefault(stored[cache], [])
        seen += [] if seen and seen[-1] == cache else [cache]
    return sum(len(set(run)) for run in runs.values() if len(run) > len(set(run)))


def is_split(cache: BoundCache) -> bool:
    """Whether any axis of a cache is shared over workers."""
    return any(tensor.split for tensor in cache.tensors)


def page(side: BoundSide, workers: Sequence[BoundWorker], cache: BoundCache, tokens: int) -> int:
    """Return the bytes of one layer's page of `tokens` tokens (0 for a state), on the worker with the largest page."""
    sized = replace(cache, kernel=tokens, env={**cache.env, "kernel_block": tokens, "kernel_page": tokens})
    return max(layer_bytes(local_sizes(side, worker, sized, 1)) for worker in workers)


def grid(side: BoundSide, workers: Sequence[BoundWorker], cache: BoundCache, tokens: int) -> tuple[int, int]:
    """Return (heads, rows) of a page: items of shared axes on the worker with most, token rows; (1, 1) for a state."""
    if cache.store != "tokens":
        return 1, 1
    first = cache.tensors[0]
    shared = dict(first.split)
    counts = [
        prod(b - a for axis, (a, b) in shard_intervals(side, first, w).items() if axis in shared) for w in workers
    ]
    return max(counts), tokens // first.tokens_per_row


def widest(side: BoundSide, workers: Sequence[BoundWorker]) -> int:
    """Return the bytes of a token of one layer, in the widest cache."""
    return max((row_bytes(side, workers, cache) for cache in side.caches if cache.store == "tokens"), default=0)


def row_bytes(side: BoundSide, workers: Sequence[BoundWorker], cache: BoundCache) -> int:
    """Return the bytes of a token of one layer, on the worker with most."""
    return max(_local_bytes(side, worker, cache) for worker in workers)


def _local_bytes(side: BoundSide, worker: BoundWorker, cache: BoundCache) -> int:
    held = [(shard_intervals(side, tensor, worker), tensor) for tensor in cache.tensors]
    return sum(prod(b - a for a, b in h.values()) * t.size // t.tokens_per_row for h, t in held)
