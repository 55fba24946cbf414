"""Which tokens and layers have come: what does not tile the request is refused, in words that name both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.transfer.test_chunks import PLAN, REQUEST, chunk

from kvplan.runtime import errors
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover

COVERS: dict[str, tuple[list[Chunk], str]] = {
    "twice": ([chunk(2, 9), chunk(2, 9)], r"tokens \[2, 9\) of a chunk overlap tokens \[2, 9\)"),
    "overlap": ([chunk(2, 9), chunk(8, 14)], r"tokens \[8, 14\) of a chunk overlap tokens \[2, 9\)"),
    "one layer twice": ([chunk(2, 9, some=frozenset({3})), chunk(4, 6)], r"layer 3: tokens \[4, 6\)"),
    "a gap": (
        [chunk(2, 8), chunk(9, 14, last=True)],
        r"gaps in layers 3, 7: of layer 3 there are .*\[2, 8\), .*\[9, 14\)",
    ),
    "a layer": ([chunk(2, 14, some=frozenset({3}), last=True)], r"gaps in layer 7: of layer 7 there are none"),
    "nothing": ([chunk(14, 14, last=True)], "there are none, the request has tokens"),
    "unknown": ([chunk(2, 14, some=frozenset({3, 4}))], "layer 4 of a chunk are unknown: there are layers 3, 7"),
    "after the last": ([chunk(2, 14, last=True), chunk(14, 14, last=True)], "came after the last chunk"),
    "empty": ([chunk(5, 5)], "only the last chunk may be empty"),
}


@pytest.mark.parametrize("name", COVERS)
def test_what_does_not_tile_the_request_is_refused(name: str) -> None:
    fed, text = COVERS[name]
    cover = ChunkCover(PLAN, REQUEST)
    for one in fed[:-1]:
        cover.add(one)
    with pytest.raises(errors.BadRequestError, match=text):
        cover.add(fed[-1])


def test_what_was_refused_has_not_come() -> None:
    cover = ChunkCover(PLAN, REQUEST)
    cover.add(chunk(5, 9))
    with pytest.raises(errors.BadRequestError):
        cover.add(chunk(9, 14, last=True))
    assert not cover.ended
    cover.add(chunk(2, 5))
    cover.add(chunk(9, 14, last=True))
    assert cover.ended


def test_an_empty_request_is_covered_once() -> None:
    cover = ChunkCover(PLAN, replace(REQUEST, tokens=(14, 14)))
    cover.add(chunk(14, 14, some=frozenset({3})))
    with pytest.raises(errors.BadRequestError, match=r"layer 3: .*overlap"):
        cover.add(chunk(14, 14, some=frozenset({3}), last=True))
    cover.add(chunk(14, 14, some=frozenset({7}), last=True))
    assert cover.ended


@given(st.lists(st.tuples(st.integers(2, 14), st.integers(2, 14), st.sampled_from(([3], [7], [3, 7]))), max_size=8))
def test_a_cover_takes_what_is_new_and_nothing_else(offers: list[tuple[int, int, list[int]]]) -> None:
    cover, came = ChunkCover(PLAN, REQUEST), set[tuple[int, int]]()
    for one, other, some in offers:
        first, end = sorted((one, other))
        cells = {(token, layer) for token in range(first, end) for layer in some}
        if cells and not cells & came:
            cover.add(chunk(first, end, some=frozenset(some)))
            came |= cells
        else:
            with pytest.raises(errors.BadRequestError):
                cover.add(chunk(first, end, some=frozenset(some)))
    full = len(came) == 24
    if full:
        cover.add(chunk(14, 14, last=True))
    else:
        with pytest.raises(errors.BadRequestError, match="gaps"):
            cover.add(chunk(14, 14, last=True))
    assert cover.ended == full
