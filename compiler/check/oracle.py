"""Find every byte of a side by naive indexing: the second opinion that plans are simulated against.

It shares nothing with the derivation of a plan or its proof, and is deliberately simple: it asks for each item who
holds it, walks a storage expression as written, and keeps addresses in arrays with one entry per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import lcm, prod

import numpy as np
import numpy.typing as npt

from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, BoundWorker
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Align, Axis, Expr, Item, Leaf, Pad, Repeat

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PageField:
    """One tensor in a page. `axes` are (name, global numbers), `layer` the first of them; `offset` has their shape.

    The numbers of the token axis are rows inside the kernel block. `offset` is in bytes, of an element's first byte.
    """

    tensor: BoundTensor
    axes: tuple[tuple[str, Ints], ...]
    offset: Ints


@dataclass(frozen=True, slots=True)
class OraclePlane:
    """One plane of one worker: `page` and `stride` in bytes; `layer` is None if layers lie inside the page."""

    name: str
    cache: str
    group: BoundGroup
    layer: int | None
    part: str | None
    page: int
    stride: int
    fields: tuple[PageField, ...]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The inputs of one cache's walk: local numbers of every axis of every tensor on this worker."""

    cache: BoundCache
    held: Mapping[str, Mapping[str, Ints]]
    # Bytes behind each layer inside a block.
    spare: int = 0

    def number(self, expr: Expr) -> int:
        """Return the value of an expression of the storage, a whole number."""
        value = evaluate(expr, self.cache.env)
        assert isinstance(value, int)
        return value


@dataclass(frozen=True, slots=True)
class _LeafFound:
    """A leaf and the loops around it so far: outside `block`, inside it; `base` has one axis per loop inside."""

    tensor: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    base: Ints


def share(side: BoundSide, worker: BoundWorker, mesh: str | None, n: int, listed: tuple[int, ...] | None) -> Ints:
    """Return the items of an axis of `n` that `worker` holds if mesh axis `mesh` shares the axis."""
    if mesh is None:
        return np.arange(n)
    t, i = dict(side.sizes)[mesh], dict(worker.at)[mesh]
    if listed is not None:
        owner = [w for w, count in enumerate(listed) for _ in range(count)]
        return np.array([k for k in range(n) if owner[k] == i], np.int64)
    if t <= n:
        return np.array([k for k in range(n) if i * n // t <= k < (i + 1) * n // t], np.int64)
    mine = i % n if side.copies == "round_robin" else i * n // t
    return np.array([k for k in range(n) if k == mine], np.int64)


def held(side: BoundSide, worker: BoundWorker, cache: BoundCache, tensor: BoundTensor) -> dict[str, Ints]:
    """Return global numbers of every axis of `tensor` on `worker`; on the token axis, the rows of one kernel block."""
    split, listed = dict(tensor.split), dict(tensor.shares)
    rows = np.arange(cache.kernel // tensor.tokens_per_row)
    return {a: share(side, worker, split.get(a), n, listed.get(a)) if n else rows for a, n in tensor.axes}


def layers(worker: BoundWorker, cache: BoundCache, group: BoundGroup) -> tuple[int, ...]:
    """Return the layers of `cache` that `group` has on this worker's stage, in the group's order."""
    return tuple(n for name, n in group.members if name == cache.name and n in worker.layers)


def planes(side: BoundSide, worker: BoundWorker) -> dict[str, OraclePlane]:
    """Return every non-empty plane of `worker` by name: `cache[.layer][.other axis][.part]`, with global numbers."""
    every = list(_planes(side, worker))
    caches = {cache.name: cache for cache in side.caches}
    row = {name: _row(side, worker, every, cache.memory) for name, cache in caches.items()}
    return {p.name: replace(p, stride=stride(caches[p.cache], p.page, row[p.cache])) for p in every if p.page}


def _row(side: BoundSide, worker: BoundWorker, every: list[OraclePlane], memory: str) -> int:
    """Return the bytes of the largest block of one memory, with all caches' padding, rounded up to their alignment."""
    mine, used = [cache for cache in side.caches if cache.memory == memory], []
    for members in side.stored or [group.members for group in side.groups]:
        here = {cache: [n for name, n in members if name == cache and n in worker.layers] for cache, _ in members}
        pages = {cache: _pages(worker, side, every, cache, numbers) for cache, numbers in here.items()}
        used.append(sum(max(pages[c.name], len(here[c.name]) * c.padded) for c in mine if c.name in here))
    unit = lcm(*(c.align for c in mine if any(n in worker.layers for n in c.layers)))
    return -(-max(used, default=0) // unit) * unit


def _pages(worker: BoundWorker, side: BoundSide, every: list[OraclePlane], cache: str, numbers: list[int]) -> int:
    """Return the bytes of the pages of these layers of a cache, over all planes."""
    (stored,) = (c for c in side.caches if c.name == cache)
    mine = [plane for plane in every if plane.cache == cache]
    firsts = [layers(worker, stored, p.group)[0] if p.layer is None else p.layer for p in mine]
    return sum(plane.page for plane, first in zip(mine, firsts, strict=True) if first in numbers)


def stride(cache: BoundCache, page: int, row: int) -> int:
    """Return the bytes from a block to the next one: by the engine's rule, or else a page."""
    if cache.stride is None:
        return page
    value = evaluate(cache.stride.expr, {**cache.stride.env, "page": page, "block_bytes": row})
    assert isinstance(value, int)
    return value


def _planes(side: BoundSide, worker: BoundWorker) -> Iterator[OraclePlane]:
    seen: set[str] = set()
    for cache, group in product(side.caches, side.groups):
        numbers = np.array(layers(worker, cache, group), np.int64)
        names = {t.name: {"layer": numbers, **held(side, worker, cache, t)} for t in cache.tensors}
        for plane in cache_planes(_Scope(cache, names), group) if numbers.size else ():
            assert plane.name not in seen, f"two planes are called {plane.name}"
            seen.add(plane.name)
            yield plane


def cache_planes(scope: _Scope, group: BoundGroup) -> Iterator[OraclePlane]:
    """Yield the planes of one cache in one group, allocation by allocation, `block` by `block`."""
    scope = replace(scope, spare=spare(scope))
    for name, items in scope.cache.storage.parts:
        blocks = list(occurrences(scope, items, ()))
        for number, (outer, block) in enumerate(blocks):
            part = [] if name is None else [name]
            part += [str(number)] if len(blocks) > 1 else []
            yield from block_planes(scope, group, outer, block, ".".join(part) or None)


def spare(scope: _Scope) -> int:
    """Return the bytes by which a layer, over all planes, is shorter than its least size.

    0 if it has planes of its own, or if a worker holds none of it.
    """
    blocks = [found for _, items in scope.cache.storage.parts for found in occurrences(scope, items, ())]
    numbers = next(iter(scope.held.values()))
    turns = [prod(extent(scope, axis, tensors(scope, block)[0]) for axis in outer) for outer, block in blocks]
    taken = sum(size(scope, block.body) * n for (_, block), n in zip(blocks, turns, strict=True))
    if not taken or any(axis.name == "layer" for outer, _ in blocks for axis in outer):
        return 0
    return max(0, scope.cache.padded - taken // numbers["layer"].size)


def occurrences(
    scope: _Scope, items: tuple[Item, ...], outer: tuple[Axis, ...]
) -> Iterator[tuple[tuple[Axis, ...], Repeat]]:
    """Yield every `block` that is not empty, with the axes of the loops outside it."""
    for item in items:
        if not isinstance(item, Repeat) or not tensors(scope, item):
            continue
        if item.axis.name == "block":
            yield outer, item
        else:
            yield from occurrences(scope, item.body, (*outer, item.axis))


def block_planes(
    scope: _Scope, group: BoundGroup, outer: tuple[Axis, ...], block: Repeat, part: str | None
) -> Iterator[OraclePlane]:
    """Yield the planes of one `block`: one for each index of the loops outside it."""
    page = size(scope, block.body)
    leaves = [replace(f, outer=outer) for f in walk(scope, block.body, np.zeros((), np.int64), ())]
    numbers = scope.held[leaves[0].tensor]
    seen: dict[tuple[bytes, ...], Ints] = {}
    for index in product(*(range(extent(scope, axis, leaves[0].tensor)) for axis in outer)):
        at = [(a.name, int(numbers[a.name][i]) if not a.tiles else i) for a, i in zip(outer, index, strict=True)]
        layer, others = dict(at).get("layer"), [n for a, n in at if a != "layer"]
        together = "" if layer is not None or group.name == scope.cache.name else f"@{group.name}"
        words = [scope.cache.name + together, layer, *others, part]
        name = ".".join(str(w) for w in words if w is not None)
        fields = tuple(field(scope, leaf, index, seen) for leaf in leaves)
        yield OraclePlane(name, scope.cache.name, group, layer, part, page, page, fields)


def field(scope: _Scope, leaf: _LeafFound, index: tuple[int, ...], seen: dict[tuple[bytes, ...], Ints]) -> PageField:
    """Return one tensor of the plane at `index` of the outer loops. `seen` caches addresses that planes share."""
    tensor = next(t for t in scope.cache.tensors if t.name == leaf.tensor)
    local = {a: np.arange(n.size) for a, n in scope.held[leaf.tensor].items()}
    for axis, i in zip(leaf.outer, index, strict=True):
        local[axis.name] = local[axis.name][tiled(scope, axis)(local[axis.name]) == i]
    loops = {axis.name for axis in leaf.inner}
    key = (leaf.tensor.encode(), *(n.tobytes() if a in loops else str(n.size).encode() for a, n in local.items()))
    if key not in seen:
        seen[key] = offsets(scope, leaf, local)
    return PageField(tensor, tuple((a, scope.held[leaf.tensor][a][n]) for a, n in local.items()), seen[key])


def offsets(scope: _Scope, leaf: _LeafFound, local: Mapping[str, Ints]) -> Ints:
    """Return the address of every element of a leaf: an array lookup by the index of every loop."""
    mesh = dict(zip(local, np.ix_(*local.values()), strict=True))
    found = leaf.base[tuple(tiled(scope, axis)(mesh[axis.name]) for axis in leaf.inner)]
    return np.broadcast_to(found, tuple(n.size for n in local.values()))


def walk(scope: _Scope, items: tuple[Item, ...], base: Ints, loops: tuple[Axis, ...]) -> Iterator[_LeafFound]:
    """Yield every leaf under `items`, whose braces begin at the addresses in `base`."""
    done = 0
    for item in items:
        if isinstance(item, Leaf) and item.tensor in scope.held:
            yield _LeafFound(item.tensor, (), loops, base + done)
        if isinstance(item, Repeat) and tensors(scope, item):
            step, times = body(scope, item), count(scope, item)
            yield from walk(scope, item.body, base[..., None] + done + np.arange(times) * step, (*loops, item.axis))
        done = after(scope, item, done)


def size(scope: _Scope, items: tuple[Item, ...]) -> int:
    """Return the bytes of one pass over `items`."""
    done = 0
    for item in items:
        done = after(scope, item, done)
    return done


def after(scope: _Scope, item: Item, done: int) -> int:
    """Return the bytes of the enclosing braces up to the end of `item`, which follows `done` bytes."""
    if isinstance(item, Leaf):
        return done + sum(t.size for t in scope.cache.tensors if t.name == item.tensor)
    if isinstance(item, Pad):
        return done + scope.number(item.size)
    if isinstance(item, Align):
        n = scope.number(item.size)
        return (done + n - 1) // n * n
    return done + (body(scope, item) * count(scope, item) if tensors(scope, item) else 0)


def body(scope: _Scope, loop: Repeat) -> int:
    """Return the bytes of one pass over a loop's body; a layer's includes its spare bytes."""
    return size(scope, loop.body) + (scope.spare if loop.axis.name == "layer" else 0)


def count(scope: _Scope, loop: Repeat) -> int:
    """Return the iterations of a loop, including those of padding."""
    real = {extent(scope, loop.axis, t) for t in tensors(scope, loop)}
    assert len(real) == 1, f"tensors under {loop.axis.name} do not agree on its extent: {sorted(real)}"
    return real.pop() + (scope.number(loop.axis.extra) if loop.axis.extra else 0)


def extent(scope: _Scope, axis: Axis, tensor: str) -> int:
    """Return how many different values the axis' tiles give for the local numbers of `tensor`."""
    numbers = scope.held[tensor][axis.name].size
    return len(set(tiled(scope, axis)(np.arange(numbers)).tolist())) if axis.tiles else numbers


def tensors(scope: _Scope, item: Item) -> list[str]:
    """Return the existing tensors stored under an item."""
    if isinstance(item, Leaf):
        return [item.tensor] if item.tensor in scope.held else []
    return [t for inner in item.body for t in tensors(scope, inner)] if isinstance(item, Repeat) else []


def tiled(scope: _Scope, axis: Axis) -> Callable[[Ints], Ints]:
    """Return the function from a local number to the index of this loop."""
    tiles = [(op, scope.number(n)) for op, n in axis.tiles]

    def value(local: Ints) -> Ints:
        for op, n in tiles:
            local = local // n if op == "/" else local % n
        return local

    return value
