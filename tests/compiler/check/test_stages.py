"""Two hops by way of a buffer come to one list of copies."""

from __future__ import annotations

from kvplan.compiler.check.stages import composed


def test_what_goes_in_comes_out_at_the_same_bytes() -> None:
    into = [(0, 100, 0, 64), (1, 200, 64, 32)]
    out = [(5, 0, 16, 64), (6, 0, 80, 16)]
    assert composed(into, out) == [((0, 116), (5, 0), 48), ((1, 200), (5, 48), 16), ((1, 216), (6, 0), 16)]


def test_bytes_that_nothing_filled_do_not_come_out() -> None:
    assert composed([(0, 0, 32, 16)], [(5, 0, 0, 64)]) == [((0, 0), (5, 32), 16)]
    assert composed([], [(5, 0, 0, 64)]) == []
