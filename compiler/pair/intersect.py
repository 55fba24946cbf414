"""Intersect two holdings of one tensor: the common part as nests of elements, with both sides' places.

Law: the nests of a read cover the intersection exactly once, every element at its own place on either side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import gcd, lcm

from kvplan.compiler.placement.shards import Interval
from kvplan.compiler.placement.tree import AxisDigit, TensorPlacement


@dataclass(frozen=True, slots=True)
class AddressLoop:
    """`count` iterations over `axis`, `prefill` and `decode` places apart (place: plane << SHIFT | byte)."""

    axis: str
    count: int
    prefill: int
    decode: int


@dataclass(frozen=True, slots=True)
class TokenStep:
    """The distance to the next row of tokens: `step` bytes (prefill, decode). `hops` (rows, prefill and decode bytes)
    add to that after every so many rows of the page."""

    step: tuple[int, int]
    hops: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AddressNest:
    """`bytes` bytes at the two places, repeated by `loops`; `token` is the step to the next row of tokens."""

    tensors: tuple[str, ...]
    prefill: int
    decode: int
    bytes: int
    loops: tuple[AddressLoop, ...]
    token: TokenStep | None = None


Piece = tuple[int, int, tuple[AddressLoop, ...]]
Digits = tuple[AxisDigit, ...]


@dataclass(frozen=True, slots=True)
class CommonRange:
    """A common range of one axis: local start on either side, number of items, distance to the next one on either."""

    prefill: int
    decode: int
    count: int
    steps: tuple[int, int] = (1, 1)


def common(one: Interval, other: Interval) -> CommonRange:
    """Return the overlap of two global intervals, in each side's local coordinates."""
    start, stop = max(one[0], other[0]), min(one[1], other[1])
    return CommonRange(start - one[0], start - other[0], max(0, stop - start))


def runs(prefill: tuple[int, ...], decode: tuple[int, ...], layers: tuple[int, ...]) -> list[CommonRange]:
    """Return the global layers as the longest ranges with a regular step in both sides' lists."""
    theirs, ours = ({layer: place for place, layer in enumerate(side)} for side in (prefill, decode))
    found: list[CommonRange] = []
    for layer in layers:
        at = theirs[layer], ours[layer]
        longer = _longer(found[-1], at) if found else None
        found[-1 if longer else len(found) :] = [longer or CommonRange(*at, 1)]
    return found


def _longer(before: CommonRange, at: tuple[int, int]) -> CommonRange | None:
    """Return a range with one more item, None if that item is no regular step further in both lists."""
    ahead = at[0] - before.prefill, at[1] - before.decode
    steps = ahead if before.count == 1 else before.steps
    if min(steps) < 1 or ahead != (steps[0] * before.count, steps[1] * before.count):
        return None
    return CommonRange(before.prefill, before.decode, before.count + 1, steps)


def spans(
    prefill: TensorPlacement, decode: TensorPlacement, ranges: Mapping[str, list[CommonRange]], size: int
) -> Iterator[AddressNest]:
    """Yield all nests of one tensor: the product over its axes of the pieces of their ranges."""
    axes = [
        [piece for r in found for piece in pieces(_digits_of(prefill, axis), _digits_of(decode, axis), r)]
        for axis, found in ranges.items()
    ]
    for combination in product(*axes):
        p, d = sum(piece[0] for piece in combination), sum(piece[1] for piece in combination)
        loops = tuple(step for piece in combination for step in piece[2] if step.count > 1)
        yield AddressNest((prefill.tensor,), prefill.address + p, decode.address + d, size, loops)


def law(prefill: TensorPlacement, decode: TensorPlacement, axis: str) -> TokenStep:
    """Return the step from row to row along the token axis `axis`, which either side may store in tiles."""
    (p, p_hops), (d, d_hops) = _hops(_digits_of(prefill, axis)), _hops(_digits_of(decode, axis))
    rows = sorted(p_hops.keys() | d_hops.keys())
    return TokenStep((p, d), tuple((n, p_hops.get(n, 0), d_hops.get(n, 0)) for n in rows))


def _hops(digits: Digits) -> tuple[int, dict[int, int]]:
    """Return the step from row to row, and the bytes that the start of every tile adds, by the rows of the tile."""
    extra: Counter[int] = Counter()
    for outer, inner in pairwise(digits):
        # A sum, because a loop of one turn has as many rows as the loop inside it.
        extra[outer.weight] += outer.step - outer.weight // inner.weight * inner.step
    return digits[-1].step, {weight: more for weight, more in extra.items() if more}


def _digits_of(spot: TensorPlacement, axis: str) -> Digits:
    return tuple(sorted((d for d in spot.digits if d.axis == axis), key=lambda d: -d.weight))


def pieces(p: Digits, d: Digits, r: CommonRange) -> Iterator[Piece]:
    """Yield a range of one axis as loops that are regular on both sides, cut at the ends of either side's tiles."""
    if r.count < 1:
        return
    if len(p) == 1 and len(d) == 1:
        steps = r.steps[0] * p[0].step, r.steps[1] * d[0].step
        yield r.prefill * p[0].step, r.decode * d[0].step, (AddressLoop(p[0].axis, r.count, *steps),)
    elif r.steps != (1, 1):
        items = ((r.prefill + i * r.steps[0], r.decode + i * r.steps[1]) for i in range(r.count))
        yield from (piece for item in items for piece in pieces(p, d, CommonRange(*item, 1)))
    elif len(p) > 1 and _one_tile(p[0], r.prefill, r.count):
        tile = r.prefill // p[0].weight
        inner = CommonRange(r.prefill % p[0].weight, r.decode, r.count)
        yield from ((at + tile * p[0].step, to, loops) for at, to, loops in pieces(p[1:], d, inner))
    elif len(d) > 1 and _one_tile(d[0], r.decode, r.count):
        tile = r.decode // d[0].weight
        inner = CommonRange(r.prefill, r.decode % d[0].weight, r.count)
        yield from ((at, to + tile * d[0].step, loops) for at, to, loops in pieces(p, d[1:], inner))
    else:
        yield from _split(p, d, r)


def _one_tile(digit: AxisDigit, start: int, count: int) -> bool:
    return start // digit.weight == (start + count - 1) // digit.weight


def _split(p: Digits, d: Digits, r: CommonRange) -> Iterator[Piece]:
    """Repeat whole tiles of both sides in a loop; otherwise cut at the next end of a tile.

    Tiles that never begin together repeat as well: `period` items further only the outermost digits move.
    """
    period = lcm(p[0].weight, d[0].weight)
    whole = r.count // period
    together = r.prefill % p[0].weight == 0 and r.decode % d[0].weight == 0
    never = (r.prefill - r.decode) % gcd(p[0].weight, d[0].weight) != 0
    if whole > 1 and (together or never):
        step = AddressLoop(p[0].axis, whole, period // p[0].weight * p[0].step, period // d[0].weight * d[0].step)
        first = pieces(p, d, CommonRange(r.prefill, r.decode, period))
        yield from ((at, to, (step, *loops)) for at, to, loops in first)
        yield from pieces(p, d, _rest(r, whole * period))
        return
    ends = [
        digit[0].weight - start % digit[0].weight for digit, start in ((p, r.prefill), (d, r.decode)) if len(digit) > 1
    ]
    cut = min(ends)
    yield from pieces(p, d, CommonRange(r.prefill, r.decode, min(cut, r.count)))
    yield from pieces(p, d, _rest(r, cut))


def _rest(r: CommonRange, count: int) -> CommonRange:
    return CommonRange(r.prefill + count, r.decode + count, r.count - count)
