"""Block ids as engines have them, and positions in a table."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

from kvplan.plan.block_tables import Ring
from kvplan.plan.blocks import Blocks, Ids, Positions, distinct
from kvplan.plan.errors import BlockTableError

IDS = [5, 3, -1, 9]


class Tensor:
    """What is an array only when it is asked to be, as a tensor of torch is."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(IDS, np.int32)


GIVEN: dict[str, Ids] = {
    "list": IDS,
    "tuple": tuple(IDS),
    "numpy's own": np.array(IDS),
    "array": array("q", IDS),
    "narrow array": array("i", IDS),
    "memory": memoryview(array("q", IDS)),
    "tensor": Tensor(),
}


@pytest.mark.parametrize("name", GIVEN)
def test_ids_are_taken_as_an_engine_has_them(name: str) -> None:
    for table in (Blocks(2, GIVEN[name]), Ring(GIVEN[name], 2)):
        assert (type(table.ids), table.ids.tolist()) == (np.ndarray, IDS)
    assert Blocks(2, GIVEN[name], null=3).ids.tolist() == [5, -1, -1, 9]


def test_an_array_is_not_copied() -> None:
    own = array("q", IDS)
    own[0] = 6
    table = Blocks(0, own)
    own[0] = 7
    assert table.ids[0] == 7


@pytest.mark.parametrize("given", [[1.0], ["1"], [None], [1 << 63], [True], (0, False), [5, 1, True]])
def test_a_list_of_anything_else_stays_for_its_check(given: Any) -> None:
    assert Blocks(0, given).ids is given


def test_positions_side_by_side_and_apart_name_the_same_blocks() -> None:
    table = Blocks(2, np.array([5, 3, 8, 9]))
    for asked in ([2, 3, 4], [3, 2], [5, 5], [2, 4], [4], []):
        at = Positions(np.array(asked, np.int64))
        assert table.at(at).tolist() == [table.ids[position - 2] for position in asked]
        assert at.side_by_side == (asked == [*range(at.low, at.stop)])


@pytest.mark.parametrize("asked", [[1, 2], [5, 6], [6], [1]])
def test_positions_beyond_the_table(asked: list[int]) -> None:
    with pytest.raises(BlockTableError, match=f"{asked[0]}..{asked[-1]}"):
        Blocks(2, np.arange(4)).at(Positions(np.array(asked)))


@pytest.mark.parametrize("asked", [[0, 1, 2, 3], [3, 2]])
def test_a_block_that_is_not_there_is_named_by_its_position(asked: list[int]) -> None:
    with pytest.raises(BlockTableError, match="no block at position 2,"):
        Blocks(0, np.array(IDS)).at(Positions(np.array(asked)))


@pytest.mark.parametrize("ids", [[], [4], [4, 4], [3, 1, 2], [3, 1, 3, 1, 1], [1 << 33, -1, 1, 1 << 33]])
def test_each_id_once(ids: list[int]) -> None:
    assert distinct(np.array(ids, np.int64)).tolist() == sorted(set(ids))
