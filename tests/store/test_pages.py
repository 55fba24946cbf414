"""Pages are read in pieces, and every byte of every piece counts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.store.errors import DamagedObjectError
from kvplan.store.header import Bytes, ObjectHeader
from kvplan.store.pages import checksum, read_pages


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), most=st.integers(1, 50), data=st.data())
def test_pages_in_pieces(sizes: list[int], most: int, data: st.DataObject) -> None:
    body = np.random.default_rng(1).integers(0, 256, sum(sizes), np.uint8)
    written = np.split(body, np.cumsum(sizes)[:-1])
    header = ObjectHeader("s", "k", "p", 1, ((0, 1),), tuple((page.nbytes, checksum(page)) for page in written))
    bad = data.draw(st.none() | st.integers(0, len(body) - 1))
    there = body.copy()
    if bad is not None:
        there[bad] ^= 1
    asked: list[int] = []

    def read(start: int, pieces: Sequence[Bytes]) -> None:
        asked.append(sum(piece.nbytes for piece in pieces))
        for piece in pieces:
            piece[:] = there[start : start + piece.nbytes]
            start += piece.nbytes

    pages = {f"page {number}": np.zeros(size, np.uint8) for number, size in enumerate(sizes)}
    if bad is None:
        read_pages(header, pages, read, most)
        assert np.array_equal(np.concatenate(list(pages.values())), body)
    else:
        wrong = int(np.searchsorted(np.cumsum(sizes), bad, "right"))
        with pytest.raises(DamagedObjectError, match=f"^page {wrong} of object"):
            read_pages(header, pages, read, most)
    assert sum(asked) == len(body)
    assert max(asked) <= most


def test_sums_are_those_of_any_release() -> None:
    """Whichever library makes them: what was written with one is read with the other."""
    page = np.random.default_rng(2).integers(0, 256, 100_003, np.uint8)
    assert checksum(page) == zlib.crc32(page.tobytes())
