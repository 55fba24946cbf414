"""The image of pages in a stage, and what nests touch."""

from __future__ import annotations

from kvplan.plan.stage import extent, image, moved_bytes, planes
from kvplan.plan.types import Loop, Nest, PageRange, Table

LAYERS = Loop("layer", count=3, prefill=(2, 0), decode=(1, 0))
HEADS = Loop("head", count=2, prefill=(0, 512), decode=(0, 64))


def test_the_rows_of_an_image_follow_each_other_range_by_range() -> None:
    found = image((PageRange(0, 128, 64, planes=3, step=2), PageRange(1, 0, 32)))
    rows = list(
        zip(found.plane.tolist(), found.offset.tolist(), found.bytes.tolist(), found.start.tolist(), strict=True)
    )
    assert rows == [(0, 128, 64, 0), (2, 128, 64, 64), (4, 128, 64, 128), (1, 0, 32, 192)]
    assert found.size == 224


def test_a_byte_is_found_in_its_row_and_nowhere_else() -> None:
    found = image((PageRange(0, 128, 64, planes=3, step=2),))
    assert [found.row(2, 128), found.row(2, 191), found.row(2, 192), found.row(2, 127), found.row(1, 128)] == [
        1,
        1,
        -1,
        -1,
        -1,
    ]


def test_an_extent_reaches_over_loops_and_rows_of_tokens() -> None:
    page = Nest(("k",), (0, 128), (0, 0), 64, (LAYERS, HEADS))
    assert (extent(page, 0), extent(page, 1)) == ((128, 704), (0, 128))
    token = Nest(("k",), (0, 128), (0, 0), 64, (HEADS,), token_step=(1024, 128), hops=((8, 0, 32),))
    assert (extent(token, 0, 16), extent(token, 1, 16)) == (
        (128, 128 + 512 + 15 * 1024 + 64),
        (0, 64 + 15 * 128 + 32 + 64),
    )


def test_planes_and_bytes_of_a_nest_are_counted_over_its_loops() -> None:
    nest = Nest(("k",), (1, 128), (0, 0), 64, (LAYERS, HEADS))
    assert (planes(nest, 0), planes(nest, 1), moved_bytes(nest)) == ([1, 3, 5], [0, 1, 2], 384)
    assert moved_bytes(Nest(("k",), bytes=64, token_step=(64, 64)), tokens=16) == 1024


def test_ranges_move_with_their_side_of_the_table() -> None:
    table = Table(unpack=(PageRange(1, 8, 64),), pack=(PageRange(2, 0, 32),))
    moved = table.moved((3, 100), (5, 1000))
    assert (moved.unpack, moved.pack) == ((PageRange(4, 108, 64),), (PageRange(7, 1000, 32),))
