"""Copies that are timed: every byte goes from pages with heads first to where pages with tokens first have it."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.cli.calibrate.copies import HEADS, TOGETHER, TOKENS, timed_copies
from kvplan.cli.calibrate.memories import HostMemory

SIZE = 1 << 18


@pytest.mark.parametrize("together", [8, 64, 2048])
def test_heads_and_tokens_change_places(together: int) -> None:
    copy = timed_copies(HostMemory(), SIZE)[together]
    copy.source[...] = np.arange(copy.source.size).reshape(copy.source.shape)
    copy.run()
    assert copy.bytes == SIZE
    pages = copy.target.base.base.reshape(-1, TOKENS, HEADS, together // 8)
    assert (pages == np.arange(SIZE // 8).reshape(pages.shape)).all()


def test_lengths_of_which_no_page_is_so_small_are_left_out() -> None:
    assert [*timed_copies(HostMemory(), 4096 * TOKENS * HEADS)] == [each for each in TOGETHER if each <= 4096]
