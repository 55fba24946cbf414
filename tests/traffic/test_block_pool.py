"""KV blocks: served in turn, shared by equal prefixes, kept until they are needed."""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment

from kvplan.traffic.block_pool import BlockGrant, BlockPool, Hash


def pool(capacity: int) -> BlockPool:
    return BlockPool(Environment(), capacity, 256)


def take(blocks: BlockPool, tokens: int, hashes: Sequence[Hash] = ()) -> BlockGrant:
    event = blocks.take(tokens, hashes)
    assert event.triggered
    grant: BlockGrant = event.value
    blocks.filled(grant, hashes)
    return grant


def test_who_asks_first_is_served_first() -> None:
    blocks = pool(4)
    one = take(blocks, 600)
    large, small = blocks.take(1024, ()), blocks.take(1, ())
    assert (blocks.in_use, large.triggered, small.triggered) == (3, False, False)
    blocks.give_back(one)
    assert (blocks.in_use, large.triggered, small.triggered) == (4, True, False)
    blocks.leave(large)
    assert (blocks.in_use, small.triggered, blocks.most) == (1, True, 4)


def test_who_gives_up_lets_others_by() -> None:
    blocks = pool(4)
    take(blocks, 600)
    large, small = blocks.take(1024, ()), blocks.take(1, ())
    blocks.leave(large)
    assert small.triggered


def test_equal_prefixes_share_blocks() -> None:
    blocks = pool(8)
    one = take(blocks, 1200, (1, 2))
    two = take(blocks, 1024, (1, 3))
    assert (one.hits, two.hits, blocks.in_use) == (0, 512, 5 + 2)
    blocks.give_back(one)
    assert blocks.in_use == 4
    assert take(blocks, 1024, (1, 2)).hits == 1024


def test_a_block_is_found_only_when_it_is_filled_and_what_comes_before_it_is() -> None:
    blocks = pool(16)
    blocks.take(1024, (1, 2))
    assert take(blocks, 1024, (1, 2)).hits == 0
    assert take(blocks, 1024, (9, 2)).hits == 0


def test_what_was_used_least_recently_goes_first() -> None:
    blocks = pool(4)
    for number in (1, 2, 1):
        blocks.give_back(take(blocks, 512, (number,)))
    blocks.give_back(take(blocks, 512, ()))
    # Four blocks: those of 1 and 2 were free and kept, until two were needed.
    assert take(blocks, 512, (1,)).hits == 512
    assert take(blocks, 512, (2,)).hits == 0
