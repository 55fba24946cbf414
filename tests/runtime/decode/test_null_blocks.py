"""Blocks that are not there, by the number that an engine has for them: read as -1, by either side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, move
from tests.runtime.helpers.worlds import LOGICAL, world

from kvplan.plan.block_tables import Tables, blocks
from kvplan.plan.types import Blocks
from kvplan.runtime import Request, Ring, errors

FIRST, NULLS = 2, {"prefill": LOGICAL - 1, "decode": 0}


def with_nulls(request: Request, prefill: int | None = None, decode: int | None = None) -> Request:
    """Blocks before the first token are the null block of either side, which is said where it is given."""
    sides = _table(request.prefill, NULLS["prefill"], prefill), _table(request.decode, NULLS["decode"], decode)
    return replace(request, prefill={**request.prefill, "kv": sides[0]}, decode={**request.decode, "kv": sides[1]})


def _table(tables: Tables, number: int, null: int | None) -> Blocks:
    ids = blocks(tables["kv"]).ids.copy()
    ids[:FIRST] = number
    return Blocks(0, ids, null=null)


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_null_blocks_are_neither_read_nor_written(mode: str) -> None:
    made = world(Shape(2), Shape(1), mode=mode)
    move(made, with_nulls(ask(made, (4 * FIRST, 45)), **NULLS))


def test_null_blocks_where_tokens_are_needed_are_refused() -> None:
    made = world(Shape(2), Shape(1))
    failed = made.decode[0].submit(with_nulls(ask(made, (0, 45)), **NULLS), 5)
    with pytest.raises(errors.BadRequestError, match="no block at position"):
        failed.wait()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_any_integers(dtype: Any) -> None:
    given: Any = np.array([0, 7, 0, 9], dtype)
    for table in (Blocks(3, given, null=0), Ring(given, 8, null=0)):
        assert table.ids.tolist() == [-1, 7, -1, 9]
        assert table.ids.dtype.name == "int64"
    assert given.tolist() == [0, 7, 0, 9]


def test_what_is_no_id_is_left_for_the_check() -> None:
    """A number that an int64 does not hold would wrap to -1, and be no block."""
    wide: Any = np.array([2**64 - 1, 0], np.uint64)
    assert Blocks(0, wide, null=0).ids is wide
    text: Any = "0"
    floats: Any = np.array([0.0, 1.0])
    assert Blocks(0, floats, null=0).ids is floats
    with pytest.raises(TypeError):
        Blocks(0, np.array([1]), null=text)
