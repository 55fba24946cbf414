"""Explode: exactly the elements of a range, each once, with its coordinate; half elements are refused."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.tree import BodyLoop, Element
from kvplan.compiler.prove.explode import BoxLoop, explode

# head { token { k[dim] pad(2) v[dim] } }: 3 heads of 4 tokens, 5 elements of 2 bytes each.
ROW = (BodyLoop(0, "dim", 1, 5, 2, (Element(0, "k", 2),)), BodyLoop(12, "dim", 1, 5, 2, (Element(0, "v", 2),)))
PAGE = (BodyLoop(0, "head", 1, 3, 88, (BodyLoop(0, "token", 1, 4, 22, ROW),)),)
ALL = {
    h * 88 + t * 22 + base + 2 * i: (tensor, h, t, i)
    for h, t, i, (base, tensor) in product(range(3), range(4), range(5), [(0, "k"), (12, "v")])
}


def elements(start: int, length: int) -> list[tuple[int, tuple[str, int, int, int]]]:
    found = []
    for box in explode(PAGE, start, length):
        for turn in product(*(range(t.count) for t in box.loops)):
            at = dict(box.start)
            for n, t in zip(turn, box.loops, strict=True):
                at[t.axis] += n * t.delta
            byte = start + box.at + sum(n * t.step for n, t in zip(turn, box.loops, strict=True))
            found.append((byte, (box.tensor, at["head"], at["token"], at["dim"])))
    return sorted(found)


@given(st.integers(0, 131), st.integers(1, 132))
def test_a_range_has_exactly_its_elements(start: int, length: int) -> None:
    start, length = 2 * start, min(2 * length, 264 - 2 * start)
    assert elements(start, length) == sorted((b, c) for b, c in ALL.items() if start <= b < start + length)


def test_half_an_element_is_refused() -> None:
    for start, length in [(1, 4), (1, 3), (0, 3), (1, 1), (0, 1)]:
        with pytest.raises(ProofFailed, match="cuts an element"):
            explode(PAGE, start, length)


def test_a_whole_page_is_one_box_a_tensor() -> None:
    assert [(b.tensor, len(b.loops)) for b in explode(PAGE, 0, 264)] == [("k", 3), ("v", 3)]


def tree(*loops: tuple[str, int, int, int]) -> tuple[BodyLoop | Element, ...]:
    """Loops (axis, weight, count, step), the outer ones first, around one element of 4 bytes."""
    body: tuple[BodyLoop | Element, ...] = (Element(0, "k", 4),)
    for axis, weight, count, step in reversed(loops):
        body = (BodyLoop(0, axis, weight, count, step, body),)
    return body


FLAT = tree(("head", 1, 4, 48), ("dim", 1, 12, 4))


@pytest.mark.parametrize(
    "tiled",
    [
        tree(("head", 1, 4, 48), ("dim", 4, 3, 16), ("dim", 1, 4, 4)),
        tree(("head", 2, 2, 96), ("head", 1, 2, 48), ("dim", 6, 2, 24), ("dim", 1, 6, 4)),
        tree(("head", 1, 4, 48), ("dim", 6, 2, 24), ("dim", 2, 3, 8), ("dim", 1, 2, 4)),
    ],
)
def test_a_range_has_one_normal_form_however_its_loops_are_cut(tiled: tuple[BodyLoop | Element, ...]) -> None:
    for start, end in combinations(range(0, 4 * 48 + 1, 4), 2):
        assert explode(tiled, start, end - start) == explode(FLAT, start, end - start)


def test_elements_between_which_something_else_lies_stay_in_loops_of_their_own() -> None:
    """Two tiles of an axis with a gap between them are two loops, and so are two loops of different axes."""
    gap = tree(("dim", 4, 3, 20), ("dim", 1, 4, 4))
    assert [box.loops for box in explode(gap, 0, 60)] == [(BoxLoop(20, 3, "dim", 4), BoxLoop(4, 4, "dim", 1))]
    axes = tree(("head", 1, 3, 16), ("dim", 1, 4, 4))
    assert [box.loops for box in explode(axes, 0, 48)] == [(BoxLoop(16, 3, "head", 1), BoxLoop(4, 4, "dim", 1))]
