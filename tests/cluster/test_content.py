"""The rig's own eyes: they see what is right, and every kind of wrong byte; blocks are handed out to one at a time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.cluster import content as eyes
from tests.cluster.allocator import Allocator
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.worlds import expect, memory, tables

from kvplan.plan.types import Blocks

SHAPES = [Shape(1), Shape(2, kernel=2, ratio=2), Shape(2, kernel=8, tail=5)]
MODEL, END = Model(), 21


@pytest.mark.parametrize("shape", SHAPES)
def test_the_two_ways_of_indexing_agree(shape: Shape) -> None:
    ids = [7, 3, 9, 1, 0, 30][: -(-END // (shape.kernel * shape.ratio))]
    what, table = eyes.content(MODEL, "a", END), Blocks(0, np.array(ids))
    for worker in range(shape.workers):
        arrays = memory(shape, MODEL, worker)
        eyes.write(shape, MODEL, worker, arrays, what, table, np.arange(END))
        eyes.write_states(shape, MODEL, worker, arrays, what, 4)
        wanted = expect(shape, MODEL, worker, what, tables(shape, MODEL, ids, 0, 4, END), (0, END))
        assert all(np.array_equal(array, wanted[name]) for name, array in arrays.items())


@pytest.mark.parametrize("shape", SHAPES)
def test_every_kind_of_wrong_byte_is_seen(shape: Shape) -> None:
    per = shape.kernel * shape.ratio
    ids = list(range(10, 10 - -(-END // per), -1))
    what, table, arrays = eyes.content(MODEL, "a", END), Blocks(0, np.array(ids)), memory(shape, MODEL, 0)
    eyes.paint(arrays)
    eyes.write(shape, MODEL, 0, arrays, what, table, np.arange(5, END))
    assert eyes.wrong_rows(shape, MODEL, 0, arrays, what, table, (5, END)) == ""
    assert "tokens [5]" in eyes.wrong_rows(shape, MODEL, 0, arrays, what, table, (6, END))
    assert "tokens [4]" in eyes.wrong_rows(shape, MODEL, 0, arrays, what, table, (4, END))
    other = eyes.content(MODEL, "b", END)
    assert eyes.wrong_rows(shape, MODEL, 0, arrays, other, table, (5, END))
    assert "slot 2" in eyes.wrong_states(shape, MODEL, 0, arrays, what, 2)
    assert eyes.changed(shape, MODEL, arrays, "kv", range(40)) == tuple(sorted(ids[5 // per :]))
    eyes.repaint(shape, arrays, "kv", ids)
    assert eyes.changed(shape, MODEL, arrays, "kv", range(40)) == ()


def test_a_block_has_one_owner() -> None:
    blocks = Allocator(8, Random(0))
    ids, slot = blocks.take(5) or ([], -1)
    assert len(set(ids)) == 5
    assert blocks.take(4) is None
    assert blocks.used() == {"kv": 5, "state": 1}
    blocks.give(ids, slot)
    assert blocks.used() == {"kv": 0, "state": 0}
    with pytest.raises(ValueError, match="freed twice"):
        blocks.give(ids, slot)
