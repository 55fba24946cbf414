"""Coalesce: fewer spans move the same bytes; what lies between is crossed only where neither side has data there."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from kvplan.compiler.pair.coalesce import PaddingTests, coalesce, vacant
from kvplan.compiler.pair.intersect import AddressLoop, AddressNest
from kvplan.compiler.placement.tree import PLANE, AxisDigit, BodyLoop, Element, PagedRegion, PlacedCache

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


def cell(random: Random, sizes: list[int], at: list[int] | None) -> list[int]:
    """The first bytes of pieces in a cell of one side: those of the other side, or in random order with random gaps."""
    if at is not None and random.random() < 0.7:
        return at
    found, end = [0] * len(sizes), 0
    for piece in random.sample(range(len(sizes)), len(sizes)):
        found[piece] = end + random.choice([0, 0, 1, 2])
        end = found[piece] + sizes[piece]
    return found


@pytest.mark.parametrize("seed", range(200))
def test_pairs_that_carry_data_stay_the_same(seed: int) -> None:
    """Pages of cells under common loops, with pieces that move, pieces that stay and padding in each cell."""
    random = Random(seed)
    sizes = [random.choice([1, 2, 3]) for _ in range(random.randint(1, 5))]
    prefill = cell(random, sizes, None)
    decode = cell(random, sizes, prefill)
    loops: list[tuple[int, int, int]] = []
    steps = [max(at + size for at, size in zip(side, sizes, strict=True)) for side in (prefill, decode)]
    for _ in range(random.randint(0, 2)):
        longer = [step + random.choice([0, 0, 1, 3]) for step in steps]
        steps = [max(longer)] * 2 if random.random() < 0.7 else longer
        loops.insert(0, (random.choice([2, 3, 4]), steps[0], steps[1]))
        steps = [loops[0][0] * step for step in steps]
    every = [nest(p, d, size, *loops) for p, d, size in zip(prefill, decode, sizes, strict=True)]
    moves = [each for each in every if random.random() < 0.8] or every[:1]
    data = [{pair[side] for pair in moved(tuple(every))} for side in (0, 1)]
    gaps = PaddingTests(*(lambda start, stop, own=own: own.isdisjoint(range(start, stop)) for own in data))
    found = coalesce(moves, gaps)
    assert [pair for pair in moved(found) if pair[0] in data[0] or pair[1] in data[1]] == moved(tuple(moves))
    assert len(found) <= len(moves)
    for each in found:
        assert {each.prefill, each.prefill + each.bytes - 1} <= data[0]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("data", "size"), [(None, 46), (2, 2), (3, 2), (42, 2), (43, 2), (14, 14), (31, 14), (46, 46)])
def test_a_loop_folds_over_its_gaps_if_the_first_and_the_last_have_no_data(
    side: int, data: int | None, size: int
) -> None:
    """Two rows of four pieces; what lies after the last piece is crossed by no fold."""
    row = nest(0, 0, 2, (2, 32, 32), (4, 4, 4))
    own = {at for at, _ in moved((row,))}
    held = [own | {data} if one == side else own for one in (0, 1)]
    gaps = PaddingTests(*(lambda start, stop, held=held: held.isdisjoint(range(start, stop)) for held in held))
    assert [each.bytes for each in coalesce([row], gaps)] == [size]


@pytest.mark.parametrize(
    ("prefill", "decode", "count"),
    [(None, None, 1), (102, None, 2), (104, None, 2), (134, None, 2), (136, None, 2), (150, None, 1),
     (None, 2, 2), (None, 4, 2), (None, 42, 2), (None, 44, 2), (None, 62, 1)],
)  # fmt: skip
def test_spans_under_a_loop_join_if_the_first_and_the_last_gap_have_no_data(
    prefill: int | None, decode: int | None, count: int
) -> None:
    held = [{prefill}, {decode}]
    gaps = PaddingTests(*(lambda start, stop, held=held: held.isdisjoint(range(start, stop)) for held in held))
    assert len(coalesce([nest(100, 0, 2, (3, 16, 20)), nest(105, 5, 2, (3, 16, 20))], gaps)) == count


# gap(2) head { token { k(3 bytes) gap(1) v(2) gap(2) } gap(1) w(3) }: 3 heads of 2 tokens, in planes 1 and 2.
TOKEN = BodyLoop(0, "token", 1, 2, 8, (Element(0, "k", 3), Element(4, "v", 2)))
BODY = (BodyLoop(2, "head", 1, 3, 20, (TOKEN, Element(17, "w", 3))),)
UNIT = PlacedCache("c", "g", (0, 1), 1, 2, (PagedRegion(None, 0, (AxisDigit("layer", 1, 2, 1),), BODY, 64, 64),))
DATA = {2 + head * 20 + byte for head in range(3) for byte in (0, 1, 2, 4, 5, 8, 9, 10, 12, 13, 17, 18, 19)}


@pytest.mark.parametrize("plane", [1, 2])
def test_padding_is_what_lies_in_a_page_and_in_no_element(plane: int) -> None:
    test, at = vacant(UNIT), plane * PLANE
    for start, stop in combinations(range(68), 2):
        assert test(at + start, at + stop) == (stop <= 64 and DATA.isdisjoint(range(start, stop))), (start, stop)


def test_where_no_page_lies_there_is_no_padding() -> None:
    test = vacant(UNIT)
    assert not test(3, 4)
    assert not test(3 * PLANE + 3, 3 * PLANE + 4)
