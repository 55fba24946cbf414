"""Block ids as engines have them, and positions in a table."""

from __future__ import annotations

from array import array
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from kvplan.plan.block_tables import Ring
from kvplan.plan.blocks import (
    Blocks,
    Ids,
    Positions,
    bounds,
    chains,
    cuts,
    distinct,
    held_before,
    in_order,
    slots,
    turns,
    without_null,
)
from kvplan.plan.errors import BlockTableError

IDS = [5, 3, -1, 9]


class Tensor:
    """An object that becomes an array on demand, like a tensor of torch."""

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


@pytest.mark.parametrize("top", [4, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, (1 << 63) - 1])
def test_ids_are_sorted_whatever_their_size(top: int) -> None:
    assert in_order(np.array([top, -1, 2, top, 0])).tolist() == [-1, 0, 2, top, top]
    assert in_order(np.array([top])).tolist() == [top]


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 70])
def test_bounds_of_few_ids_and_of_many(count: int) -> None:
    ids = np.array(Random(count).sample(range(-1, 1000), count))
    assert bounds(ids) == (min(ids), max(ids))


def test_an_engine_s_null_is_no_block() -> None:
    ids = np.array([3, 0, 7])
    assert without_null(ids, None) is ids
    assert without_null(ids, 0).tolist() == [3, -1, 7]
    assert without_null(np.empty(0, np.int64), 0).tolist() == []
    assert without_null(np.array([1 << 63, 0], np.uint64), 0).tolist() == [1 << 63, 0]
    assert without_null(np.array([(1 << 63) - 1, 0], np.uint64), 0).tolist() == [(1 << 63) - 1, -1]
    assert without_null(np.array([0.0, 1.0]), 0).tolist() == [0.0, 1.0]
    with pytest.raises(TypeError):
        without_null(ids, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_tokens_are_cut_at_every_multiple_and_at_the_tokens_given(seed: int) -> None:
    random = Random(seed)
    first = random.randint(0, 40)
    end, steps = first + random.randint(0, 40), [random.randint(1, 9) for _ in range(random.randint(1, 3))]
    given = sorted(random.sample(range(first + 1, end), min(2, max(0, end - first - 1))))
    start, length = cuts(first, end, *steps, *([np.array(given)] if given else []))
    inside = {token for token in range(first + 1, end) if any(token % step == 0 for step in steps)} | {*given}
    edges = sorted({first, end} | inside)
    assert list(zip(start, start + length, strict=True)) == list(pairwise(edges))


@pytest.mark.parametrize("seed", range(60))
def test_turns_of_tokens_against_every_token(seed: int) -> None:
    """A worker has every `shards`th chunk of tokens; its kernel blocks are filled one after the other."""
    random = Random(seed)
    kernel, chunk, shards = random.randint(1, 5), random.randint(1, 5), random.randint(1, 4)
    shard, first = random.randrange(shards), random.randint(0, 30)
    end = first + random.randint(0, 40)
    own = [token for token in range(end) if token // chunk % shards == shard]
    assert held_before(end, chunk, shards, shard) == len(own)
    assert turns(first, end, kernel, chunk, shards, shard).tolist() == [t for t in own[::kernel] if t > first]


@pytest.mark.parametrize("seed", range(40))
def test_chains_go_up_by_one_on_both_sides(seed: int) -> None:
    random = Random(seed)
    steps = [random.choice([(1, 1), (1, 1), (1, 2), (2, 1), (0, 1), (1, -1)]) for _ in range(random.randint(0, 12))]
    p, d = ([sum(step[side] for step in steps[: n + 1]) for n in range(len(steps))] for side in (0, 1))
    start, length = chains(np.array(p, np.int64), np.array(d, np.int64))
    begins = [n for n, step in enumerate(steps) if n == 0 or step != (1, 1)]
    assert start.tolist() == begins
    assert length.tolist() == [after - before for before, after in pairwise([*begins, len(p)])]


def test_a_state_has_one_slot_on_either_side() -> None:
    runs = slots(Blocks(0, [0]), Blocks(0, [7]))
    assert [row.tolist() for row in runs] == [[0], [0], [7], [0], [1]]
    for bad in ([], [1, 2], [-1]):
        with pytest.raises(BlockTableError, match="on the prefill side"):
            slots(Blocks(0, bad), Blocks(0, [7]))
        with pytest.raises(BlockTableError, match="on the decode side"):
            slots(Blocks(0, [7]), Blocks(0, bad))
