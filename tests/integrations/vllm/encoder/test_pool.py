"""Rows of a pool: an item in one piece, nothing that anybody needs given away, in any order of calls."""

from __future__ import annotations

import random

from kvplan.integrations.vllm.encoder.pool import PooledItem, RowPool

ROWS = 4


def pool(blocks: int, done: int = 1 << 40) -> RowPool:
    return RowPool(blocks, ROWS, lambda step: step <= done)


def taken(rows: RowPool, user: str = "r", **sizes: int) -> list[PooledItem]:
    items = rows.take(sizes, user)
    assert items is not None
    return items


def test_items_lie_in_one_piece_and_apart() -> None:
    items = taken(pool(10), a=1, b=9, c=20)
    assert [list(item.block_ids) for item in items] == [[0], [1, 2, 3], [4, 5, 6, 7, 8]]


def test_all_of_a_request_get_room_or_none() -> None:
    rows = pool(4)
    assert rows.take({"a": 12, "b": 8}, "r") is None
    assert list(rows) == []
    assert not rows.fits({"a": 12, "b": 8})
    assert rows.fits({"a": 12, "b": 4})
    assert taken(rows, a=16)


def test_what_nobody_used_for_longest_goes_first() -> None:
    rows = pool(3)
    for item in taken(rows, a=4, b=4, c=4):
        item.users.clear()
    first = rows.find("a")
    assert first is not None
    rows.use(first, "s")
    first.users.clear()
    taken(rows, d=4)
    assert [item.hash for item in rows] == ["c", "a", "d"]


def test_nothing_is_given_away_in_vain() -> None:
    """Evicting every unused item would not make enough room, so all of them stay."""
    rows = pool(3)
    old, kept = taken(rows, a=4, b=4)
    old.users.clear()
    assert rows.take({"c": 12}, "s") is None
    assert {item.hash for item in rows} == {"a", "b"}
    assert kept.users == {"r"}


def test_rows_that_a_step_may_touch_are_not_used_again() -> None:
    rows = pool(1, done=4)
    (item,) = taken(rows, a=4)
    item.users.clear()
    item.step = 5
    assert rows.take({"b": 4}, "s") is None
    rows.drop(item)
    assert rows.find("a") is None
    assert rows.take({"b": 4}, "s") is None
    item.step = 4
    assert taken(rows, b=4)


def test_rows_that_may_still_be_written_are_not_used_again() -> None:
    rows = pool(1)
    (item,) = taken(rows, a=4)
    item.arriving = True
    rows.drop(item)
    assert rows.take({"b": 4}, "s") is None
    item.arriving = False
    (new,) = taken(rows, b=4)
    assert new.ticket != item.ticket


def test_whatever_is_done_no_two_items_share_a_block() -> None:
    chance, rows, number = random.Random(1), pool(20, done=0), 0
    busy: list[PooledItem] = []
    for _ in range(3000):
        number += 1
        items = rows.take({f"{number}.{n}": chance.randint(1, 30) for n in range(chance.randint(1, 3))}, "r") or []
        for item in items:
            item.step, item.arriving = chance.choice([0, 1]), chance.random() < 0.3
        busy += items
        blocks = [block for item in busy for block in item.block_ids]
        assert len(blocks) == len(set(blocks))
        assert not blocks or max(blocks) < 20
        chance.shuffle(busy)
        for item in busy[: chance.randint(0, 3)]:
            item.step, item.arriving = 0, False
            item.users.clear()
            if chance.random() < 0.5:
                rows.drop(item)
        busy = [item for item in busy if item.users or item.step or item.arriving]
    assert number == 3000
