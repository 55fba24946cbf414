"""Coalesce: the fewest spans that move the same bytes.

Law: the set of (prefill byte, decode byte) pairs that carry data does not change. A span may cross padding only if
both sides have padding there; it never begins or ends in padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kvplan.compiler.pair.intersect import AddressLoop, AddressNest
from kvplan.compiler.placement.tree import PLANE, Element, PlacedCache, Tree, locate
from kvplan.dsl.text.grouped import grouped

# Whether a side's places [start, stop) hold no data.
Vacant = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class PaddingTests:
    """The two sides' tests for padding."""

    prefill: Vacant
    decode: Vacant

    def face(self, prefill: int, decode: int, size: int) -> bool:
        return self.prefill(prefill, prefill + size) and self.decode(decode, decode + size)


def coalesce(spans: Iterable[AddressNest], gaps: PaddingTests) -> tuple[AddressNest, ...]:
    """Fold loops into spans and merge neighbours, across tensors too, until nothing changes."""
    now = list(spans)
    while True:
        folded = [_fold(span, gaps) for span in now]
        merged = _merge(folded, gaps)
        if merged == now:
            return tuple(sorted(merged, key=lambda s: (s.decode, s.prefill)))
        now = merged


def _fold(span: AddressNest, gaps: PaddingTests) -> AddressNest:
    for step in sorted(span.loops, key=lambda s: s.decode):
        if step.prefill != step.decode or not span.bytes <= step.decode < PLANE:
            continue
        gap = step.decode - span.bytes
        if gap and not all(gaps.face(p, d, gap) for p, d in _gap_starts(span, step)):
            continue
        rest = tuple(other for other in span.loops if other is not step)
        return _fold(replace(span, bytes=step.decode * (step.count - 1) + span.bytes, loops=rest), gaps)
    return span


def _gap_starts(span: AddressNest, loop: AddressLoop) -> list[tuple[int, int]]:
    """Return the places of the first and the last gap that folding `loop` would cross."""
    others = [step for step in span.loops if step is not loop]
    far_p = sum((s.count - 1) * s.prefill for s in others) + (loop.count - 2) * loop.prefill
    far_d = sum((s.count - 1) * s.decode for s in others) + (loop.count - 2) * loop.decode
    end_p, end_d = span.prefill + span.bytes, span.decode + span.bytes
    return [(end_p, end_d), (end_p + far_p, end_d + far_d)]


def _merge(spans: list[AddressNest], gaps: PaddingTests) -> list[AddressNest]:
    """Join spans that are consecutive on both sides under the same loops."""
    alike = grouped(((frozenset(span.loops), span.token), span) for span in spans)
    return [joined for group in alike.values() for joined in _join(sorted(group, key=lambda s: s.decode), gaps)]


def _join(spans: list[AddressNest], gaps: PaddingTests) -> list[AddressNest]:
    joined = spans[:1]
    for span in spans[1:]:
        last = joined[-1]
        gap = span.decode - last.decode - last.bytes
        follows = span.prefill - last.prefill == span.decode - last.decode and 0 <= gap < PLANE // 2
        if follows and (gap == 0 or _padding_between(last, gap, gaps)):
            tensors = tuple(dict.fromkeys(last.tensors + span.tensors))
            joined[-1] = replace(last, tensors=tensors, bytes=last.bytes + gap + span.bytes)
        else:
            joined.append(span)
    return joined


def _padding_between(span: AddressNest, gap: int, gaps: PaddingTests) -> bool:
    far_p = sum((s.count - 1) * s.prefill for s in span.loops)
    far_d = sum((s.count - 1) * s.decode for s in span.loops)
    p, d = span.prefill + span.bytes, span.decode + span.bytes
    return gaps.face(p, d, gap) and gaps.face(p + far_p, d + far_d, gap)


def vacant(unit: PlacedCache) -> Vacant:
    """Return the padding test of one unit: the places lie in one page and hold no element."""

    def test(start: int, stop: int) -> bool:
        found = locate(unit, start // PLANE)
        low, high = start % PLANE, start % PLANE + stop - start
        return found is not None and high <= found[0].page and not _occupied(found[0].body, low, high)

    return test


def _occupied(body: tuple[Tree, ...], low: int, high: int) -> bool:
    """Whether an element under `body` has a byte in [low, high), counted from the body's start."""
    for node in body:
        if isinstance(node, Element):
            if node.offset < high and low < node.offset + node.size:
                return True
        elif node.step and _loop_occupied(node.body, node.count, node.step, low - node.offset, high - node.offset):
            return True
    return False


def _loop_occupied(body: tuple[Tree, ...], count: int, step: int, low: int, high: int) -> bool:
    first, last = max(0, low // step), min(count - 1, (high - 1) // step)
    if last - first > 1:
        return True
    return any(_occupied(body, low - i * step, high - i * step) for i in range(first, last + 1))
