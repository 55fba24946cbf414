"""Bytes that are adjacent on both sides are one descriptor, across planes and caches."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.compiler.api import compile_pair
from kvplan.dsl.library import load
from kvplan.plan import planes as names
from kvplan.plan.blocks import Blocks
from kvplan.plan.match import rule_of
from kvplan.plan.types import Plan, Side
from kvplan.runtime import Memory, views
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.transfer import prepare
from kvplan.runtime.transfer.gather import GatheredSpans, IndexScratch, gather
from kvplan.runtime.transfer.prepared import PreparedLink
from kvplan.runtime.transport.inmemory import Hub, InMemory

# Latent vectors and an indexer's keys in one row of a block, padded on vLLM.
MODEL, SIDE = "deepseek-v3.2", "tp=1,kv_dtype=fp8_ds_mla,order=BLHNC"
Starts = tuple[int, int]
BASE, BLOCKS, TOKENS = 1 << 40, 12, 64
TOGETHER, APART = (0, 2561024), (515328, 0)


@cache
def plan() -> Plan:
    return compile_pair(load(), MODEL, SIDE, SIDE).plan


def pool(side: Side, base: int, starts: Starts) -> Pool:
    """A pool whose planes begin `starts` bytes behind the start of every block."""
    found, size = names.planes(side.workers[0]), names.planes(side.workers[0])[0].stride
    whole = base, size * (BLOCKS + 1)
    given = {
        plane.name: Memory(base + start, plane.stride, BLOCKS, (BLOCKS - 1) * size + plane.page, allocation=whole)
        for plane, start in zip(found, starts, strict=True)
    }
    return views(side, 0, given)


def link(prefill: Starts, decode: Starts) -> PreparedLink:
    pools, hub = (pool(plan().prefill, BASE, prefill), pool(plan().decode, BASE << 1, decode)), Hub()
    there, here = InMemory(hub), InMemory(hub)
    for agent, one in zip((there, here), pools, strict=True):
        agent.register(one.geometry.regions, "DRAM")
    peer = here.add_peer(there.metadata())
    return prepare.link(plan(), PreparedLink(0, 0, peer, False, pools[0].geometry, pools[1].geometry), here)


def load_of(one: PreparedLink, p: list[int], d: list[int], tokens: int = 0) -> GatheredSpans:
    (pair,) = plan().group_pairs
    there, here = (Blocks(0, np.array(some, np.int64)) for some in (p, d))
    runs = rule_of(plan(), pair).runs((0, tokens or len(p) * TOKENS), there, here)
    return gather(one, {pair.name: runs}, IndexScratch())


def test_two_caches_of_one_row_are_one_request_a_block() -> None:
    one = link(TOGETHER, TOGETHER)
    assert [len(entry.addresses) for entry in one.entries] == [1]
    found = load_of(one, [3, 7, 1], [5, 2, 9])
    assert (found.descriptors, found.bytes, found.spans) == (3, 3 * 3076352, 6)


@pytest.mark.parametrize("sides", [(TOGETHER, APART), (APART, TOGETHER)])
def test_caches_that_lie_side_by_side_on_one_side_only_stay_apart(
    sides: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    found = load_of(link(*sides), [3, 7, 1], [5, 2, 9])
    assert (found.descriptors, found.bytes) == (6, 3 * 3076352)


def test_a_part_of_a_block_is_read_row_by_row() -> None:
    whole, part = (load_of(link(TOGETHER, TOGETHER), [3], [5], tokens) for tokens in (TOKENS, TOKENS - 1))
    assert part.bytes == whole.bytes // TOKENS * (TOKENS - 1) < whole.bytes


def test_nothing_is_joined_beyond_its_block() -> None:
    rows = np.array([[1000 + at, 2000 + at, 64, 64, 64, 0, 0, 1, 1] for at in (0, 64)], np.int64)
    assert prepare.beside(rows).tolist() == rows.tolist()


ROWS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 3)), min_size=1, max_size=8)


@given(ROWS, st.integers(8, 24))
def test_joined_rows_are_the_same_bytes(drawn: list[tuple[int, int, int]], stride: int) -> None:
    rows, taken = [], set[int]()
    for p, d, size in drawn:
        if not taken & {*range(d, d + size)}:
            taken |= {*range(d, d + size)}
            rows.append([1000 + p, 2000 + d, size, stride, stride, 0, 0, 4, 4])
    found = prepare.beside(np.array(rows, np.int64))
    assert _bytes(found.tolist()) == _bytes(rows)
    assert all(row[2] <= stride or [*row] in rows for row in found.tolist())


def _bytes(rows: list[list[int]]) -> set[tuple[int, int]]:
    return {(row[0] + n, row[1] + n) for row in rows for n in range(row[2])}
