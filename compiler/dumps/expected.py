"""A layout's facts on one worker, layer by layer, in the words of a dump."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundWorker
from kvplan.compiler.dumps.arrays import OPAQUE, LayoutArray
from kvplan.compiler.dumps.dump import BLOCK, CONTENT, HEAD, TOKEN, Dump, DumpedLayer
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.tree import PLANE, PagedRegion, PlacedCache, TensorPlacement, spots, volume
from kvplan.dsl.lang.dtypes import canonical

Facts = Mapping[str, int | str]
LAYER = "layer"
PAGE = "bytes of a page"
APART = "outside the block"
ELEMENT = "element type"
BETWEEN_ELEMENTS = "bytes between elements"


@dataclass(frozen=True, slots=True)
class ExpectedLayer:
    """One layer of one part of a cache: `facts` by name. Its page has `least` bytes without padding at its end, at most
    `most`. `inside` is its distance from the first layer if layers lie inside a block. `fields` are the tensors of its
    state, or of its first row."""

    cache: str
    layer: int
    part: str
    group: str
    facts: Facts
    least: int
    most: int
    inside: int | None
    fields: tuple[LayoutArray, ...]

    @property
    def name(self) -> str:
        return f"{self.cache}.{self.part}" if self.part else self.cache


def pieces(side: BoundSide, worker: BoundWorker) -> tuple[ExpectedLayer, ...]:
    """Return every layer that the layout places on a worker. Raises Refused (C10x) like `place`."""
    caches = {cache.name: cache for cache in side.caches}
    groups = {group.name: group for group in side.groups}
    found = [(unit, part) for unit in place(side, worker) for part in unit.parts]
    return tuple(piece for unit, part in found for piece in _pieces(unit, part, caches[unit.cache], groups[unit.group]))


def _pieces(unit: PlacedCache, part: PagedRegion, cache: BoundCache, group: BoundGroup) -> list[ExpectedLayer]:
    here = spots(replace(unit, first=0, parts=(part,)))
    facts = {**_paging(cache, group), "bytes between blocks": part.stride, **_axes(here), **_element(cache, here)}
    step = next((d.step for spot in here.values() for d in spot.digits if d.axis == LAYER), 0)
    among = len(unit.layers) if step < PLANE else 1
    outer = volume(tuple(d for d in part.outer if d.axis != LAYER))
    most = part.page // among * outer
    least = min(most, max(_reach(cache, spot) for spot in here.values()) * outer)
    at = range(len(unit.layers))
    inside = [number * step if 0 < step < PLANE else None for number in at]
    fields = _fields(cache, here)
    return [
        ExpectedLayer(cache.name, unit.layers[n], part.name or "", unit.group, facts, least, most, inside[n], fields)
        for n in at
    ]


def _fields(cache: BoundCache, here: Mapping[str, TensorPlacement]) -> tuple[LayoutArray, ...]:
    """Return the tensors of a layer's state, or of the row of its first head and token."""
    among = (LAYER, BLOCK) if cache.store == "state" else (LAYER, BLOCK, HEAD, TOKEN)
    dtypes = {tensor.name: tensor.dtype for tensor in cache.tensors}
    first = min(spot.address for spot in here.values())
    return tuple(
        LayoutArray(
            name,
            spot.address - first,
            dtypes[name],
            tuple((d.count, d.step) for d in spot.digits if d.axis not in among),
        )
        for name, spot in sorted(here.items(), key=lambda item: item[1].address)
    )


def _paging(cache: BoundCache, group: BoundGroup) -> dict[str, int | str]:
    store = "state" if cache.store == "state" else "tokens"
    if store == "state":
        return {"store": store}
    keep = cache.needs.keep
    # A ring's length is all that an engine reports; it does not report which of its tokens a reader needs.
    limits = {} if cache.ring else {"window": 0 if keep is None else keep + 1, "chunk": cache.needs.chunk or 0}
    paged = {"tokens of a block": group.tokens, "tokens of a kernel block": group.kernel}
    return {"store": store, **paged, "kernel blocks of a block": group.ratio, **limits}


def _axes(here: Mapping[str, TensorPlacement]) -> dict[str, int | str]:
    """Return the items of the axes that a dump knows, and the bytes between two, if all tensors of the part agree."""
    found: dict[str, int | str] = {}
    for axis in (HEAD, TOKEN):
        digits = {tuple((d.count, d.step) for d in spot.digits if d.axis == axis) for spot in here.values()}
        counts = {pairs[0][0] for pairs in digits if len(pairs) == 1}
        steps = {pairs[0][1] for pairs in digits if len(pairs) == 1}
        if all(len(pairs) == 1 for pairs in digits) and len(counts) == 1:
            found[f"{axis}s"] = count = counts.pop()
            found |= {_between(axis): _step(steps.pop())} if len(steps) == 1 and count > 1 else {}
    return found


def _between(axis: str) -> str:
    return f"bytes between {axis}s"


BETWEEN_TOKENS = _between(TOKEN)


def _step(step: int) -> int | str:
    return APART if step >= PLANE else step


def _element(cache: BoundCache, here: Mapping[str, TensorPlacement]) -> dict[str, int | str]:
    if cache.store == "state":
        return {}
    tensors = [tensor for tensor in cache.tensors if tensor.name in here]
    sizes, dtypes = {tensor.size for tensor in tensors}, {canonical(tensor.dtype) for tensor in tensors}
    among = (LAYER, BLOCK, HEAD, TOKEN)
    steps = [d.step for spot in here.values() for d in spot.digits if d.axis not in among and d.count > 1]
    return {
        **({"bytes of an element": sizes.pop()} if len(sizes) == 1 else {}),
        **({ELEMENT: dtypes.pop()} if len(dtypes) == 1 else {}),
        **({BETWEEN_ELEMENTS: min(steps)} if steps else {}),
    }


def _reach(cache: BoundCache, spot: TensorPlacement) -> int:
    """Return the first byte behind a tensor of the first layer, in its block."""
    inner = [d for d in spot.digits if d.step < PLANE and d.axis != LAYER]
    size = next(tensor.size for tensor in cache.tensors if tensor.name == spot.tensor)
    return spot.address % PLANE + sum((d.count - 1) * d.step for d in inner) + size


def facts_of(dump: Dump, layer: DumpedLayer) -> dict[str, int | str]:
    """Return a dump's facts of a layer, in the words of `pieces`, plus the page's bytes."""
    group = dump.groups[layer.group]
    paged: dict[str, int | str] = {"store": group.store}
    if group.store == "tokens":
        paged |= {"tokens of a block": group.tokens, "tokens of a kernel block": group.kernel}
        paged |= {"window": group.window, "chunk": group.chunk}
    blocks = layer.counts[BLOCK]
    ratio: int | str = blocks // dump.blocks if blocks % dump.blocks == 0 else f"{blocks} of {dump.blocks} blocks"
    strides = {"kernel blocks of a block": ratio, "bytes between blocks": layer.steps[BLOCK], PAGE: layer.bytes}
    found: dict[str, int | str] = {}
    for axis in (axis for axis in (HEAD, TOKEN) if axis in layer.counts):
        found[f"{axis}s"] = count = layer.counts[axis]
        apart = layer.steps[axis] >= layer.counts[BLOCK] * layer.steps[BLOCK]
        found |= {_between(axis): APART if apart else layer.steps[axis]} if count > 1 else {}
    if layer.dtype != OPAQUE:
        found[ELEMENT] = layer.dtype
    if layer.counts.get(CONTENT, 1) > 1:
        found[BETWEEN_ELEMENTS] = layer.steps[CONTENT]
    return {**paged, **strides, "bytes of an element": layer.size, **found}
