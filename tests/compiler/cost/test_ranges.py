"""Page ranges: a stage has what is moved of a page, and nothing of what lies between."""

from __future__ import annotations

from kvplan.compiler.cost.ranges import DECODE, PREFILL, filled, touched
from kvplan.plan.types import Loop, Nest, PageRange, Table


def table(*at: tuple[int, int], planes: int = 3) -> Table:
    """Spans of 8 bytes at (prefill, decode) bytes of the pages of planes that are two apart on decode."""
    loop = Loop("layer", planes, (1, 0), (2, 0))
    return Table(tuple(Nest(("k",), (0, p), (1, d), 8, (loop,)) for p, d in at), ())


def test_spans_that_touch_are_one_range() -> None:
    moved = table((0, 16), (8, 40))
    assert touched(moved, PREFILL, 1) == (PageRange(0, 0, 16, 3, 1),)


def test_what_lies_between_spans_is_not_sent() -> None:
    moved = table((0, 16), (8, 40))
    assert touched(moved, DECODE, 1) == (PageRange(1, 16, 8, 3, 2), PageRange(1, 40, 8, 3, 2))


def test_ranges_are_filled_where_every_byte_is_moved() -> None:
    moved = table((0, 16), (8, 40))
    assert filled(moved, touched(moved, DECODE, 1), DECODE, 1)
    assert not filled(moved, (PageRange(1, 16, 32, 3, 2),), DECODE, 1)
