"""The table of one group of a request, checked by itself."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.plan.block_tables import Slot, check_repeats, checked
from kvplan.plan.errors import BadRequestError, RequestFault
from kvplan.plan.types import Blocks, Group

STATE, TOKENS = Group("s", "state", 0, 0, 1, 0), Group("t", "tokens", 16, 16, 1, 1)


@pytest.mark.parametrize("pool", [None, 4])
def test_a_slot_lies_in_its_pool(pool: int | None) -> None:
    assert [checked(STATE, Slot(slot, 8), 8, pool, "decode") for slot in (0, 3)] == [Slot(0, 8), Slot(3, 8)]
    for slot in (-1, *([4] if pool else [])):
        with pytest.raises(BadRequestError) as caught:
            checked(STATE, Slot(slot, 8), 8, pool, "decode")
        assert caught.value.fault is RequestFault.OUT_OF_POOL


@pytest.mark.parametrize(
    ("at", "exact", "right"), [(7, True, False), (8, True, True), (9, True, False), (7, False, False), (9, False, True)]
)
def test_a_state_stands_after_the_tokens_of_a_request(at: int, exact: bool, right: bool) -> None:
    if right:
        assert checked(STATE, Slot(1, at), 8, None, "decode", exact=exact) == Slot(1, at)
        return
    with pytest.raises(BadRequestError) as caught:
        checked(STATE, Slot(1, at), 8, None, "decode", exact=exact)
    assert caught.value.fault is RequestFault.STANDS_ELSEWHERE


def test_blocks_may_be_absent_and_none_lies_beyond_the_pool() -> None:
    found = checked(TOKENS, Blocks(2, np.array([-1, 0, 3], np.int32)), 80, 4, "decode")
    assert isinstance(found, Blocks)
    assert (found.first, found.ids.tolist(), found.ids.dtype.name) == (2, [-1, 0, 3], "int64")
    assert checked(TOKENS, Blocks(0, []), 0, 4, "decode").ids.tolist() == []  # type: ignore[union-attr]
    for ids in ([-2], [4]):
        with pytest.raises(BadRequestError) as caught:
            checked(TOKENS, Blocks(0, ids), 16, 4, "decode")
        assert caught.value.fault is RequestFault.OUT_OF_POOL


def test_the_lowest_block_that_is_named_twice_is_named() -> None:
    check_repeats("decode", [TOKENS], {"t": Blocks(0, [-1, -1, 5, 2])})
    with pytest.raises(BadRequestError, match="decode block 2 is named twice, in 't'"):
        check_repeats("decode", [TOKENS], {"t": Blocks(0, [5, 2, 2, 7, 5])})
