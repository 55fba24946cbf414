"""Copies that are timed: every byte goes from pages with heads first to where pages with tokens first have it."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.calibrate.copies import HEADS, TOGETHER, TOKENS, timed_copies
from kvplan.calibrate.memories import HostMemory

SIZE = 1 << 18


@pytest.mark.parametrize("together", [2, 16, 64, 2048])
def test_heads_and_tokens_change_places(together: int) -> None:
    copy = timed_copies(HostMemory(), SIZE)[together]
    copy.source[...] = np.arange(copy.source.size).reshape(copy.source.shape).astype(copy.source.dtype)
    copy.run()
    assert copy.bytes == SIZE
    assert (copy.target == copy.source).all()
    # Both are (page, token, head, item), and lie so that nothing is between their bytes.
    assert copy.target.flags.c_contiguous
    assert copy.source.transpose(0, 2, 1, 3).flags.c_contiguous
    assert copy.source.shape[1:3] == (TOKENS, HEADS)


def test_lengths_of_which_no_page_is_so_small_are_left_out() -> None:
    assert [*timed_copies(HostMemory(), 4096 * TOKENS * HEADS)] == [each for each in TOGETHER if each <= 4096]
