"""Objects are read in pieces, every byte of every piece counts, and no piece is moved that is not right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.store import header as heads
from kvplan.store.errors import DamagedObjectError
from kvplan.store.header import Bytes, ObjectHeader
from kvplan.store.pages import ROW, HeldPages, checksum, fill, read_body


def header_of(sizes: list[int]) -> ObjectHeader:
    return ObjectHeader("s", "k", "p", 1, ((0, 1),), tuple(sizes))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "PIECE", 16)


@pytest.mark.usefixtures("small")
@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), most=st.integers(1, 50), data=st.data())
def test_pages_in_pieces(sizes: list[int], most: int, data: st.DataObject) -> None:
    body = np.random.default_rng(1).integers(0, 256, sum(sizes), np.uint8)
    written, made = np.split(body, np.cumsum(sizes)[:-1]), header_of(sizes)
    there = np.empty_like(body)
    header = made.summed(fill(HeldPages(written), made.pieces, there))
    assert np.array_equal(there, body)
    bad = data.draw(st.none() | st.integers(0, len(body) - 1))
    if bad is not None:
        there[bad] ^= 1
    asked: list[int] = []

    def read(low: int, high: int) -> Bytes:
        asked.append(high - low)
        return there[low:high]

    pages = [np.zeros(size, np.uint8) for size in sizes]
    if bad is None:
        read_body(header, HeldPages(pages), read, most)
        assert np.array_equal(np.concatenate(pages), body)
        assert sum(asked) == len(body)
    else:
        low, high = next(piece for piece in header.pieces if piece[0] <= bad < piece[1])
        with pytest.raises(DamagedObjectError, match=f"^bytes {low} to {high} of the pages of object"):
            read_body(header, HeldPages(pages), read, most)
        found = np.concatenate(pages)
        assert np.array_equal(found[:low], body[:low])
        assert not found[low:].any()
    assert max(asked) <= max(most, 16)


@pytest.mark.usefixtures("small")
@given(sizes=st.lists(st.integers(1, 40), max_size=8))
def test_pages_are_cut_at_multiples_of_a_piece(sizes: list[int]) -> None:
    """Small pages are joined, a long one begins a piece: what lies within a piece's bytes of its page is in one."""
    pieces, ends = header_of(sizes).pieces, np.cumsum(sizes)
    assert [low for low, _ in pieces] == [0, *(high for _, high in pieces[:-1])][: len(pieces)]
    assert all(high - low <= 16 for low, high in pieces)
    assert (pieces[-1][1] if pieces else 0) == sum(sizes)
    for end, size in zip(ends.tolist(), sizes, strict=True):
        cuts = {low - (end - size) for low, _ in pieces if end - size < low < end}
        assert cuts <= set(range(16, size, 16))


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 5 * ROW), data=st.data())
def test_a_sum_sees_every_change(size: int, data: st.DataObject) -> None:
    piece = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    before, other = checksum(piece), piece.copy()
    places = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4, unique=True))
    other[places] ^= data.draw(st.sampled_from([1, 0x80, 0xFF]))
    assert checksum(other) != before
    assert checksum(piece) == before


@pytest.mark.parametrize("unit", [512, 4096, ROW, 2 * ROW])
def test_a_sum_sees_parts_that_changed_places_or_are_missing(unit: int) -> None:
    """A disk that writes sectors elsewhere, or not at all, leaves such pages."""
    piece = np.random.default_rng(3).integers(0, 256, 8 * ROW, np.uint8)
    parts = piece.reshape(-1, unit)
    swapped, lost = parts.copy(), parts.copy()
    swapped[[0, -1]], lost[1] = parts[[-1, 0]], 0
    assert len({checksum(some.ravel()) for some in (parts, swapped, lost)}) == 3
