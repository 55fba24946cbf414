"""Explode: exactly the elements of a range, each once, with its coordinate; half elements are refused."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.tree import BodyLoop, Element
from kvplan.compiler.prove.explode import explode

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
    with pytest.raises(ProofFailed, match="cuts an element"):
        explode(PAGE, 1, 4)


def test_a_whole_page_is_one_box_a_tensor() -> None:
    assert [(b.tensor, len(b.loops)) for b in explode(PAGE, 0, 264)] == [("k", 3), ("v", 3)]
