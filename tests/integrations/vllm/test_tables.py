"""The plan's tables of an engine's blocks."""

from __future__ import annotations

from tests.integrations.vllm.requests import STATE, TOKENS

from kvplan.integrations.vllm.metadata import GroupName
from kvplan.integrations.vllm.tables import BlockTables, table
from kvplan.plan.block_tables import Ring, Slot
from kvplan.plan.types import Blocks


def test_tables() -> None:
    assert table("state", (7,), 39) == Slot(7, 39)
    paged, ring = table("tokens", (0, 5, 6), 40, 1), table("ring", (0, 4), 40)
    assert isinstance(paged, Blocks)
    assert isinstance(ring, Ring)
    assert (paged.first, paged.ids.tolist(), ring.ids.tolist(), ring.at) == (1, [5, 6], [-1, 4], 40)
    assert table("tokens", (0, 5), 40).ids.tolist() == [-1, 5]  # type: ignore[union-attr]


def test_a_part_has_the_blocks_of_its_tokens_and_no_state() -> None:
    made = BlockTables((TOKENS, STATE, GroupName("w"), GroupName()), {"kv": 16, "w": 8, "state": 1})
    found = made.part(((1, 2, 3, 4), (9,), (0, 5, 6, 7, 8), (1,)), (24, 40))
    assert {name: (part.first, part.ids.tolist()) for name, part in found.items() if isinstance(part, Blocks)} == {
        "kv": (1, [2, 3]),
        "w": (3, [7, 8]),
    }
    assert set(found) == {"kv", "w"}


def test_whole_blocks_are_those_of_every_group() -> None:
    made = BlockTables((TOKENS, GroupName("w")), {"kv": 16, "w": 24})
    assert [made.whole(tokens) for tokens in (47, 48, 95, 96)] == [0, 48, 48, 96]
