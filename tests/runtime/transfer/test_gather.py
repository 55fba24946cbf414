"""The runtime posts as few descriptors as possible, and predicts their number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.helpers.plans import ROW, Model, Shape, matched, plan

from kvplan.plan.blocks import chains
from kvplan.plan.types import Plan, Table
from kvplan.runtime import Memory, errors, views
from kvplan.runtime.transfer import prepare
from kvplan.runtime.transfer.gather import IndexScratch, by_decode, gather, merge
from kvplan.runtime.transfer.prepare import INT32
from kvplan.runtime.transfer.prepared import PreparedLink
from kvplan.runtime.transport.inmemory import Hub, InMemory

BLOCKS, BASE = 30, 1 << 40
MODEL = Model(state=False)


def link(
    prefill: Shape,
    decode: Shape,
    blocks: int | tuple[int, int] = BLOCKS,
    push: bool = False,
    devices: tuple[int, int] = (0, 0),
    made: Plan | None = None,
) -> PreparedLink:
    """Planes side by side in one allocation per side, which nothing touches; as many blocks on both, or on either."""
    made, hub = made or plan(prefill, decode, MODEL), Hub()
    pools, counts = [], (blocks, blocks) if isinstance(blocks, int) else blocks
    for side, base, device, count in zip((made.prefill, made.decode), (BASE, BASE << 1), devices, counts, strict=True):
        stride = side.workers[0].planes[0].stride
        size = stride * count
        given = {
            f"kv.{layer}": Memory(base + n * size, stride, count, size, device=device, allocation=(base, 2 * size))
            for n, layer in enumerate(MODEL.layers)
        }
        pools.append(views(side, 0, given))
    agents = [InMemory(hub) for _ in pools]
    for agent, pool in zip(agents, pools, strict=True):
        agent.register(pool.geometry.regions, "DRAM")
    here, there = agents if push else reversed(agents)
    peer = here.add_peer(there.metadata())
    return prepare.link(made, PreparedLink(0, 0, peer, push, pools[0].geometry, pools[1].geometry), here)


def posted(one: PreparedLink, p: list[int], d: list[int], tokens: tuple[int, int]) -> list[tuple[int, int, int]]:
    """(prefill address, decode address, bytes) of every request."""
    runs = {"kv": matched(tokens, p, d)}
    load, found = gather(one, runs, IndexScratch()), list[tuple[int, int, int]]()
    banks: list[tuple[Any, Any, Any]] = list(load.banks)
    both = [(bank.remote.at(remote), bank.local.at(local)) for bank, local, remote in banks]
    for pair in [*both, (load.remote_spans, load.local_spans)]:
        there, here = reversed(pair) if one.push else pair
        found += zip(there[:, 0].tolist(), here[:, 0].tolist(), here[:, 1].tolist(), strict=True)
    assert load.descriptors == len(found)
    assert load.descriptors <= load.spans
    assert load.bytes <= sum(size for *_, size in found)
    return sorted(found, key=lambda row: row[1])


def fewest(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join byte ranges that continue on both sides, one by one."""
    joined: list[tuple[int, int, int]] = []
    for p, d, size in sorted(spans, key=lambda row: row[1]):
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (p, d):
            p, d, size = joined[-1][0], joined[-1][1], joined[-1][2] + size
            joined.pop()
        joined.append((p, d, size))
    return joined


PAIRS = st.permutations(range(BLOCKS)).flatmap(lambda p: st.tuples(st.just(p), st.permutations(range(BLOCKS))))


@given(PAIRS, st.integers(0, 20), st.integers(21, 4 * BLOCKS), st.integers(0, BLOCKS), st.booleans())
def test_requests_are_minimal_for_the_blocks(sides: tuple, first: int, end: int, rising: int, dense: bool) -> None:
    one = link(Shape(1), Shape(1)) if dense else link(Shape(1, tail=16), Shape(1, tail=24))
    p, d = (sorted(ids[:rising]) + list(ids[rising:]) for ids in sides)
    found = posted(one, p, d, (first, end))
    assert found == fewest(found)
    pushed = link(Shape(1), Shape(1), push=True) if dense else link(Shape(1, tail=16), Shape(1, tail=24), push=True)
    assert posted(pushed, p, d, (first, end)) == found


def test_bytes_and_spans_are_counted_before_neighbours_are_joined() -> None:
    one = link(Shape(1, tail=16), Shape(1, tail=16))
    runs = matched((0, 14), [3, 4, 5, 6], [3, 4, 5, 6])
    load = gather(one, {"kv": runs}, IndexScratch())
    # Three whole blocks in two layers, and two tokens of two heads in two layers; padding is no part of it.
    assert (load.spans, load.bytes) == (3 * 2 + 2 * 2, 14 * 2 * 2 * ROW)
    assert load.descriptors < load.spans


@pytest.mark.parametrize("push", [False, True])
def test_spans_name_the_device_of_either_side(push: bool) -> None:
    one = link(Shape(1), Shape(1), push=push, devices=(3, 5))
    runs = matched((0, 6), [3, 4], [3, 4])
    load = gather(one, {"kv": runs}, IndexScratch())
    prefill, decode = (load.local_spans, load.remote_spans) if push else (load.remote_spans, load.local_spans)
    assert set(prefill[:, 2].tolist()) == {3}
    assert set(decode[:, 2].tolist()) == {5}


def test_a_full_pool_is_one_request_even_from_plane_to_plane() -> None:
    ids = list(range(BLOCKS))
    assert posted(link(Shape(1), Shape(1)), ids, ids, (0, 4 * BLOCKS)) == [(BASE, BASE << 1, 2 * BLOCKS * 2 * 4 * ROW)]


def test_bridged_padding_never_reaches_behind_the_last_page() -> None:
    found = posted(link(Shape(1, tail=16), Shape(1, tail=16)), [3, 4, 5], [7, 8, 9], (0, 12))
    assert [size for *_, size in found] == [2 * 80 + 64] * 2


def test_neighbours_in_different_registrations_stay_apart() -> None:
    rows = np.array([[100, 500, 10, 0, 0], [110, 510, 10, 1, 0], [120, 520, 10, 1, 0]])
    assert merge(rows).tolist() == [[100, 500, 10, 0, 0], [110, 510, 20, 1, 0]]


def test_two_spans_never_write_one_byte() -> None:
    with pytest.raises(errors.AddressError, match="two spans write"):
        merge(np.array([[100, 500, 10, 0, 0], [300, 509, 10, 0, 0]]))


@pytest.mark.parametrize("blocks", [10, 1 << 16, (1 << 16) + 1, (1 << 31) - 1])
@given(data=st.data())
def test_chains(blocks: int, data: st.DataObject) -> None:
    """Ids from both ends of the pool."""
    ids = st.sampled_from([*range(5), *range(blocks - 5, blocks)])
    pairs = data.draw(st.lists(st.tuples(ids, ids), unique_by=lambda pair: pair[1]))
    given = [np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1)]
    p, d = by_decode(given[0], given[1], blocks)
    assert list(zip(d.tolist(), p.tolist(), strict=True)) == sorted((b, a) for a, b in pairs)
    if pairs:
        first, length = chains(p, d)
        spelled = [(p[a] + i, d[a] + i) for a, n in zip(first, length, strict=True) for i in range(n)]
        assert spelled == list(zip(p, d, strict=True))
        assert all((p[a] - p[a - 1], d[a] - d[a - 1]) != (1, 1) for a in first[1:])


def test_preparing_does_not_follow_the_number_of_blocks() -> None:
    few, many = link(Shape(1), Shape(1), 10**3), link(Shape(1), Shape(1), 10**6)

    def size(one: PreparedLink) -> int:
        lists: list[Any] = [bank.local for entry in one.entries for bank in entry.banks]
        return sum(prepared.rows.size for prepared in lists)

    assert size(few) == size(many)


def test_a_scratch_that_grows_keeps_what_was_handed_out() -> None:
    scratch = IndexScratch()
    first = scratch.table(2, 10, np.arange(3, dtype=np.int32))
    second = scratch.table(200, 10, np.arange(3, dtype=np.int32))
    assert first.tolist() == [0, 1, 2, 10, 11, 12]
    assert (len(second), second[-1]) == (600, 1992)


def addresses(one: PreparedLink, p: list[int], d: list[int]) -> set[tuple[int, int, int]]:
    """(prefill address, decode address, bytes) of all that goes by address."""
    tokens = 0, 4 * len(p)
    runs = {"kv": matched(tokens, p, d)}
    load = gather(one, runs, IndexScratch())
    assert not load.banks
    rows = zip(load.remote_spans.tolist(), load.local_spans[:, 0].tolist(), strict=True)
    return {(there[0], here, there[1]) for there, here in rows}


FAR = 1 << 33


@pytest.mark.parametrize(
    ("p", "d"),
    [([7], [9]), ([FAR - 1], [9]), ([7], [FAR - 1]), ([(1 << 32) + 1, 3], [1, FAR - 1]), ([1 << 31, 1 << 32], [5, 4])],
)
def test_blocks_beyond_an_int32_go_by_address(p: list[int], d: list[int]) -> None:
    """Overflowing indices move no byte at all, and no error reports it."""
    one = link(Shape(1), Shape(1), FAR)
    page = 2 * 4 * ROW
    size = page * FAR
    wanted = {
        (BASE + layer * size + source * page, (BASE << 1) + layer * size + target * page, page)
        for layer in range(2)
        for source, target in zip(p, d, strict=True)
    }
    assert addresses(one, p, d) == wanted


@pytest.mark.parametrize("blocks", [(30, 30), (INT32 // 2, 30), (INT32, INT32), (INT32 + 1, 30), (30, 1 << 33)])
def test_no_index_of_a_prepared_list_leaves_an_int32(blocks: tuple[int, int]) -> None:
    one = link(Shape(1), Shape(1), blocks)
    for entry in one.entries:
        assert all(bank.rows * max(blocks) <= INT32 for bank in entry.banks)
        assert bool(entry.banks) == (max(blocks) <= INT32)


def test_a_read_that_moves_nothing_is_refused() -> None:
    made = plan(Shape(1), Shape(1), MODEL)
    empty = replace(made, reads=((replace(made.reads[0][0], table=Table(())),),))
    with pytest.raises(errors.AddressError, match="moves nothing"):
        link(Shape(1), Shape(1), made=empty)
