"""Blocks that decode was told of, compared with those that a hold names: of every kind of table, by any numbers."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.plan.block_tables import Ring, Slot, Table
from kvplan.plan.types import Blocks
from kvplan.runtime.errors import LeaseError
from kvplan.runtime.transfer.table_agreement import check_told, contradicts, covers


def blocks(*ids: int, first: int = 0) -> Blocks:
    return Blocks(first, np.array(ids, np.int64))


def ring(*ids: int, at: int) -> Ring:
    return Ring(np.array(ids, np.int64), at)


@pytest.mark.parametrize(
    ("told", "held", "unlike"),
    [
        (blocks(1, 2), blocks(1, 2), False),
        (blocks(1, 2), blocks(1, 3), True),
        (blocks(2, first=1), blocks(1, 3), True),
        (blocks(7, first=5), blocks(1, 3), False),
        (blocks(-1, 2), blocks(1, 2), False),
        (Slot(4, 30), Slot(4, 30), False),
        (Slot(4, 30), Slot(5, 30), True),
        (Slot(4, 16), Slot(5, 30), False),
        (ring(5, 2, 7, at=30), ring(5, 2, 7, at=31), False),
        (ring(5, 2, 7, at=30), ring(9, 8, 1, at=30), True),
        (ring(5, 2, 7, at=30), ring(9, 8, 1, at=31), True),
        (ring(5, 2, 7, at=30), ring(5, 2, at=31), True),
        (ring(5, -1, 7, at=30), ring(5, 2, 7, at=31), False),
        (blocks(4), Slot(4, 30), True),
    ],
)
def test_what_contradicts(told: Table, held: Table, unlike: bool) -> None:
    assert contradicts(told, held) is unlike
    if unlike:
        with pytest.raises(LeaseError, match="other blocks of group 'kv'"):
            check_told("r", {"kv": told}, {"kv": held})


def test_what_covers() -> None:
    assert covers(blocks(1, 2, 3), blocks(2, 3, first=1))
    assert not covers(blocks(1, 2, 3), blocks(2, 4, first=1))
    assert not covers(blocks(1, 2), blocks(1, 2, 3))
    assert not covers(ring(1, 2, at=3), ring(1, 2, at=4))
