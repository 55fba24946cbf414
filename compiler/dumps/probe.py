"""Probe: an engine's own write function fills pages with numbered tokens, and the layout predicts each one's place.

Shapes and strides cannot show how a kernel fills a page. Every element of one layer has a number, written digit by
digit in whole numbers that its type represents exactly. The probe looks for it where the layout has it, then
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.errors import BadInput
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.tree import PLANE, SHIFT, PagedRegion, PlacedCache, TensorPlacement, spots

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
# Types that numpy lacks: the largest exact whole number, bits of the mantissa, bias of the exponent.
SHORT = {"bf16": (256, 7, 127), "fp8": (16, 3, 7), "fp8_e5m2": (8, 2, 15)}
PLAIN: Mapping[str, tuple[int, npt.DTypeLike]] = {
    "f64": (1 << 24, np.float64), "f32": (1 << 24, np.float32), "f16": (2048, np.float16),
    "i64": (1 << 24, np.int64), "i32": (1 << 24, np.int32), "u32": (1 << 24, np.uint32),
    "i8": (127, np.int8), "u8": (255, np.uint8),
}  # fmt: skip
BLOCKS = 4
# The blocks that tokens are written to, in this order; one is left out.
TABLE = (2, 0, 3)


@dataclass(frozen=True, slots=True)
class ProbedPages:
    """The pages of one layer of a cache for a write function to fill.

    `pages` has zeros for each part of its memory (`""` if it is the only one), (planes, blocks, bytes). `values` has
    each tensor's (tokens, its other axes in the kind's order), whole numbers that its type in `dtypes` represents
    exactly. Token i goes to `slots[i]`: number of the block times `tokens` of a block, plus the place in it.
    """

    cache: str
    kind: str
    tokens: int
    pages: Mapping[str, Bytes]
    values: Mapping[str, npt.NDArray[np.float32]]
    slots: Ints
    dtypes: Mapping[str, str]


Write = Callable[[ProbedPages], object]


@dataclass(frozen=True, slots=True)
class ProbeMemory:
    """The pages of one layer in one piece: `bases` and `sizes` (bytes of a page) by plane, `parts` by name."""

    memory: Bytes
    parts: Mapping[str, Bytes]
    bases: Ints
    sizes: Ints
    labels: tuple[str, ...]

    def place(self, byte: int) -> str:
        """Return `byte 640 of block 2`."""
        plane = int(np.where(self.bases <= byte, self.bases, -1).argmax())
        block, inside = divmod(byte - int(self.bases[plane]), int(self.sizes[plane]))
        return f"byte {inside:,} of block {block}{f' of {self.labels[plane]}' if self.labels[plane] else ''}"


def probe(side: BoundSide, worker: BoundWorker, write: Write) -> tuple[str, ...]:
    """Return a line for each tensor with elements elsewhere than the layout says; states cannot be probed.

    Raises BadInput (D015) for a cache that cannot be probed, and for a function that fails.
    """
    paged = [cache for cache in side.caches if cache.store == "tokens"]
    held = {name for group in side.groups for name, layer in group.members if layer in worker.layers}
    return tuple(line for cache in paged if cache.name in held for line in _probed(side, worker, cache, write))


def _probed(side: BoundSide, worker: BoundWorker, cache: BoundCache, write: Write) -> Iterator[str]:
    unit = _one_layer(side, worker, cache)
    tensors = {tensor.name: tensor for tensor in cache.tensors}
    memory = _memory(unit)
    slots = (np.array(TABLE)[:, None] * cache.kernel + np.arange(cache.kernel)).ravel()
    bytes_of = {name: _bytes(tensors[name], spot, memory) for name, spot in spots(unit).items()}
    firsts = np.cumsum([0, *(at.size for at in bytes_of.values())]).tolist()
    numbers = {
        n: np.arange(at.size).reshape(at.shape) + a for (n, at), a in zip(bytes_of.items(), firsts, strict=False)
    }
    written = _written(cache, memory, numbers, slots, write)
    for name, at in bytes_of.items():
        wrong = np.flatnonzero(~_there(cache, tensors[name].dtype, at, numbers[name], written))
        if wrong.size:
            yield _misplaced(cache, tensors[name], wrong, (at, numbers[name]), memory, written)


def _one_layer(side: BoundSide, worker: BoundWorker, cache: BoundCache) -> PlacedCache:
    """Return the first layer of a cache on a worker, as if it were the only one."""
    group, layer = next(
        (g, n) for g in side.groups for name, n in g.members if name == cache.name if n in worker.layers
    )
    for tensor in cache.tensors:
        if tensor.tokens_per_row > 1 or (tensor.dtype not in SHORT and tensor.dtype not in PLAIN):
            raise BadInput("D015", f"{tensor.name} of {cache.name!r} cannot be probed: {_why(tensor)}", "")
    alone: BoundGroup = replace(group, members=((cache.name, layer),))
    caches = (replace(cache, layers=(layer,), stride=None, padded=0),)
    (unit,) = place(replace(side, caches=caches, groups=(alone,), stored=()), worker)
    return unit


def _why(tensor: BoundTensor) -> str:
    return f"a row has {tensor.tokens_per_row} tokens" if tensor.tokens_per_row > 1 else f"its type is {tensor.dtype}"


def _memory(unit: PlacedCache) -> ProbeMemory:
    """Return zeros for all planes, part by part."""
    parts = {part.name or "": (part, _planes(part)) for part in unit.parts}
    sizes = {name: len(planes) * BLOCKS * part.page for name, (part, planes) in parts.items()}
    memory, ends = np.zeros(sum(sizes.values()), np.uint8), np.cumsum([0, *sizes.values()]).tolist()
    views = {
        name: memory[start : start + sizes[name]].reshape(len(planes), BLOCKS, part.page)
        for start, (name, (part, planes)) in zip(ends, parts.items(), strict=False)
    }
    where = {
        plane: (start + index * BLOCKS * part.page, part.page, name)
        for start, (name, (part, planes)) in zip(ends, parts.items(), strict=False)
        for index, plane in enumerate(planes)
    }
    bases, pages, labels = zip(*(where[plane] for plane in sorted(where)), strict=True)
    return ProbeMemory(memory, views, np.array(bases), np.array(pages), labels)


def _planes(part: PagedRegion) -> list[int]:
    found = [part.first]
    for digit in part.outer:
        found = [plane + digit.step * index for plane in found for index in range(digit.count)]
    return found


def _axes(tensor: BoundTensor) -> list[str]:
    """Return the axes of a tensor, tokens first."""
    return sorted((axis for axis, _ in tensor.axes), key=lambda axis: bool(dict(tensor.axes)[axis]))


def _bytes(tensor: BoundTensor, spot: TensorPlacement, memory: ProbeMemory) -> Ints:
    """Return the place in memory that the layout gives every element, (tokens, other axes)."""
    axes = _axes(tensor)
    extents = {axis: prod(d.count for d in spot.digits if d.axis == axis) for axis in axes}
    at = np.full([extents[axis] for axis in axes], spot.address)
    for digit in (digit for digit in spot.digits if digit.axis in extents):
        index = np.arange(extents[digit.axis]) // digit.weight % digit.count * digit.step
        at = at + index.reshape([-1 if axis == digit.axis else 1 for axis in axes])
    plane = at >> SHIFT
    inside = memory.bases[plane] + at % PLANE
    return np.concatenate([inside + block * memory.sizes[plane] for block in TABLE])


def _written(
    cache: BoundCache, memory: ProbeMemory, numbers: Mapping[str, Ints], slots: Ints, write: Write
) -> list[Bytes]:
    """Return the memory after writing each digit of the numbers, the lowest first."""
    dtypes = {tensor.name: tensor.dtype for tensor in cache.tensors}
    most = max(int(found.max()) for found in numbers.values())
    found: list[Bytes] = []
    while not found or _base(dtypes.values()) ** len(found) <= most:
        memory.memory[:] = 0
        values = {name: _digit(n, len(found), dtypes.values()).astype(np.float32) for name, n in numbers.items()}
        try:
            write(ProbedPages(cache.name, cache.kind, cache.kernel, memory.parts, values, slots, dtypes))
        except Exception as error:
            said = f"the write function failed on {cache.name!r}: {type(error).__name__}: {error}"
            raise BadInput("D015", said, "docs/from-cache.md says what it is given") from error
        found.append(memory.memory.copy())
    return found


def _base(dtypes: Iterable[str]) -> int:
    """Return the number of digits that all types represent exactly, not counting 0."""
    return min((SHORT.get(dtype) or PLAIN[dtype])[0] for dtype in dtypes)


def _digit(numbers: Ints, order: int, dtypes: Iterable[str]) -> Ints:
    """Return the digit of numbers at `order` (0: the units) plus 1: 0 marks unwritten memory."""
    base = _base(dtypes)
    found: Ints = numbers // base**order % base + 1
    return found


def _code(dtype: str, digits: Ints) -> Bytes:
    """Return the bytes of whole numbers from 1 up as elements, (…, bytes)."""
    if dtype in PLAIN:
        plain = digits.astype(PLAIN[dtype][1])
        return plain[..., None].view(np.uint8)
    _, mantissa, bias = SHORT[dtype]
    exponent = np.log2(digits).astype(np.int64)
    bits = (exponent + bias << mantissa) | (digits - (1 << exponent) << mantissa >> exponent)
    return bits.astype(np.uint16 if dtype == "bf16" else np.uint8)[..., None].view(np.uint8)


def _there(cache: BoundCache, dtype: str, at: Ints, numbers: Ints, written: Sequence[Bytes]) -> npt.NDArray[np.bool_]:
    """Whether an element's number stands at a byte of the memory."""
    dtypes = [tensor.dtype for tensor in cache.tensors]
    right = np.ones(at.shape, np.bool_)
    for order, memory in enumerate(written):
        code = _code(dtype, _digit(numbers, order, dtypes))
        right &= (memory[at[..., None] + np.arange(code.shape[-1])] == code).all(-1)
    return right


def _misplaced(
    cache: BoundCache,
    tensor: BoundTensor,
    wrong: Ints,
    layout: tuple[Ints, Ints],
    memory: ProbeMemory,
    written: list[Bytes],
) -> str:
    """Describe misplaced elements: how many, and the expected and the found place of the first."""
    at, numbers = layout
    first = int(wrong[0])
    where = ", ".join(f"{axis} {n}" for axis, n in zip(_axes(tensor), np.unravel_index(first, at.shape), strict=True))
    every = np.arange(0, memory.memory.size - tensor.size + 1)
    found = every[_there(cache, tensor.dtype, every, np.full(every.shape, numbers.ravel()[first]), written)]
    engine = f"the engine wrote it to {memory.place(int(found[0]))}" if found.size else "the engine wrote it nowhere"
    said = f"{cache.name} {tensor.name}: {wrong.size:,} of {at.size:,} elements lie elsewhere; {where}"
    return f"{said}: the layout has it at {memory.place(int(at.ravel()[first]))}, {engine}"
