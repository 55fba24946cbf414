"""Groups that overlay the same memory: an id stands for the same bytes in all of them, or nothing is registered."""

from __future__ import annotations

import numpy as np
import pytest
from tests.random_sides.sides import cache, group, side, tensor

from kvplan.compiler.placement.placed import placed
from kvplan.compiler.placement.sides import plan_side
from kvplan.plan.types import Side
from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.geometry import Geometry, check

BASE = 4096


def two_groups(stride: int) -> Side:
    """Pages of 32 bytes in logical blocks of two, and states of 12 bytes `stride` bytes apart, in one arena."""
    c = cache("layer { block { token { k[dim] } } }", tensor("k", 2, token=0, dim=4), kernel=4)
    s = cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="s", stride=stride)
    return plan_side(placed(side([c, s], [group((c, (0,)), ratio=2), group((s, (0,)))])))


def geometry(made: Side, distance: int) -> Geometry:
    """Eight logical blocks of every group, the second group's `distance` bytes behind the first one's."""
    entries = made.workers[0].planes
    columns = {
        "base": [BASE, BASE + distance],
        "stride": [entry.stride for entry in entries],
        "page": [entry.page_bytes for entry in entries],
        "count": [16, 8],
        "device": [0, 0],
        "region": [0, 0],
    }
    numbers = {name: np.array(column, np.int64) for name, column in columns.items()}
    return Geometry(**numbers, regions=np.array([[BASE, 4096, 0]], np.int64), mem_types=("DRAM",))


@pytest.mark.parametrize(("stride", "distance"), [(64, 0), (64, 52), (48, 1024)])
def test_blocks_of_one_size_may_overlay(stride: int, distance: int) -> None:
    made = two_groups(stride)
    check(geometry(made, distance), made, 0)


@pytest.mark.parametrize(("stride", "distance"), [(48, 0), (32, 0), (64, 53), (64, 64)])
def test_an_id_never_is_the_bytes_of_another(stride: int, distance: int) -> None:
    made = two_groups(stride)
    with pytest.raises(RegisterError, match="overlay each other"):
        check(geometry(made, distance), made, 0)
