"""The checker of moved bytes says what is wrong: a byte that lacks, one that differs, one that nobody asked for."""

from __future__ import annotations

import numpy as np
import pytest
from tests.end_to_end.memory import EMPTY, PADDED, Memory, allocate, content, regions_of, stamp, wrong
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table

from kvplan.plan.block_tables import Slot, Table

TEXT = "layer { block { token { k[dim] pad(2) } } }"
TABLES: dict[str, Table] = {"c": block_table(0, (3, 1)), "s": Slot(2, 6)}
REQUEST = ask((2, 6), TABLES, TABLES)
PAGE = 4 * 10


def filled() -> Memory:
    """The memory of a worker that holds tokens 2..5 in blocks 3 and 1 and a state in slot 2, and nothing else."""
    c = cache(TEXT, tensor("k", 2, token=0, dim=4), name="c", kernel=4, stride=PAGE + 8)
    s = cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="s")
    both = side([c, s], [group((c, (0,))), group((s, (0,)), arena=1)])
    source, memory = allocate(both, 0, 5, PADDED), allocate(both, 0, 5, EMPTY)
    regions = regions_of((both, both), [REQUEST])
    stamp(source, regions, TABLES)
    for block, tokens in ((3, (2, 3)), (1, (0, 1))):
        for token in tokens:
            memory.planes["c.0"][block, token * 10 : token * 10 + 8] = source.planes["c.0"][
                block, token * 10 : token * 10 + 8
            ]
    memory.planes["s.0"][2] = source.planes["s.0"][2]
    return memory


def check(memory: Memory) -> list[str]:
    return wrong(memory, regions_of((memory.side, memory.side), [REQUEST]), REQUEST)


def test_right_memory_is_right() -> None:
    assert check(filled()) == []


@pytest.mark.parametrize(
    ("plane", "block", "at"),
    [("c.0", 3, 20), ("c.0", 3, 37), ("c.0", 1, 0), ("s.0", 2, 11)],
    ids=["first needed", "last of a block", "next block", "state"],
)
@pytest.mark.parametrize("value", [EMPTY, PADDED, 7])
def test_a_needed_byte_that_differs_is_found(plane: str, block: int, at: int, value: int) -> None:
    memory = filled()
    memory.planes[plane][block, at] = value if memory.planes[plane][block, at] != value else value + 1
    assert len(check(memory)) == 1


@pytest.mark.parametrize(
    ("plane", "block", "at"),
    [("c.0", 3, 19 - 9), ("c.0", 1, 20), ("c.0", 0, 0), ("c.0", 0, 8), ("c.0", 4, 39), ("s.0", 1, 0)],
    ids=["before the first", "behind the last", "another block", "its padding", "the last block", "another slot"],
)
def test_a_byte_that_nobody_asked_for_is_found(plane: str, block: int, at: int) -> None:
    memory = filled()
    memory.planes[plane][block, at] = PADDED
    assert len(check(memory)) == 1


def test_padding_may_hold_padding_only() -> None:
    memory = filled()
    memory.planes["c.0"][3, 28] = memory.gap("c.0", 3)[0] = PADDED
    assert check(memory) == []
    memory.planes["c.0"][3, 28] = 7
    assert len(check(memory)) == 1


def test_a_label_is_no_marker() -> None:
    bytes_ = content(np.arange(100_000))
    assert bytes_.max() < EMPTY
    assert len(set(bytes_.tolist())) == EMPTY
