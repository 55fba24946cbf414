"""Coalesce: fewer spans move the same bytes; what lies between is crossed only where neither side has data there."""

from __future__ import annotations

from itertools import product

import pytest

from kvplan.compiler.pair.coalesce import PaddingTests, coalesce
from kvplan.compiler.pair.intersect import AddressLoop, AddressNest

FULL = PaddingTests(lambda start, stop: False, lambda start, stop: False)
EMPTY = PaddingTests(lambda start, stop: True, lambda start, stop: True)
HALF = PaddingTests(lambda start, stop: True, lambda start, stop: False)


def nest(prefill: int, decode: int, size: int, *loops: tuple[int, int, int]) -> AddressNest:
    return AddressNest(("k",), prefill, decode, size, tuple(AddressLoop("head", *loop) for loop in loops))


def moved(nests: tuple[AddressNest, ...]) -> list[tuple[int, int]]:
    found = []
    for each in nests:
        for turn in product(*(range(loop.count) for loop in each.loops)):
            p = each.prefill + sum(n * loop.prefill for n, loop in zip(turn, each.loops, strict=True))
            d = each.decode + sum(n * loop.decode for n, loop in zip(turn, each.loops, strict=True))
            found += [(p + byte, d + byte) for byte in range(each.bytes)]
    return sorted(found)


SAME = {
    "strides that are the bytes": ((nest(0, 8, 2, (4, 2, 2)),), 1),
    "strides of one side only": ((nest(0, 0, 2, (4, 2, 4)),), 1),
    "strides of the other side only": ((nest(0, 0, 2, (4, 4, 2)),), 1),
    "strides with data between": ((nest(0, 0, 2, (4, 4, 4)),), 1),
    "loops within loops": ((nest(0, 0, 2, (3, 8, 16), (4, 2, 2)),), 1),
    "neighbours": ((nest(0, 4, 2), nest(2, 6, 2)), 1),
    "neighbours on one side only": ((nest(0, 4, 2), nest(3, 6, 2)), 2),
    "neighbours on the other side only": ((nest(0, 4, 2), nest(2, 7, 2)), 2),
    "neighbours in another order": ((nest(2, 4, 2), nest(0, 6, 2)), 2),
    "neighbours under unlike loops": ((nest(0, 0, 2, (3, 8, 16)), nest(2, 2, 2, (4, 8, 16))), 2),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_bytes_move(name: str) -> None:
    nests, count = SAME[name]
    found = coalesce(nests, FULL)
    assert moved(found) == moved(nests)
    assert len(found) == count


@pytest.mark.parametrize(("gaps", "bytes_"), [(EMPTY, 14), (FULL, 2), (HALF, 2)])
def test_padding_is_crossed_where_it_faces_padding(gaps: PaddingTests, bytes_: int) -> None:
    assert [each.bytes for each in coalesce([nest(0, 0, 2, (4, 4, 4))], gaps)] == [bytes_]


@pytest.mark.parametrize(("gaps", "count"), [(EMPTY, 1), (FULL, 2), (HALF, 2)])
def test_spans_join_over_padding_that_faces_padding(gaps: PaddingTests, count: int) -> None:
    assert len(coalesce([nest(0, 0, 2), nest(5, 5, 2)], gaps)) == count
