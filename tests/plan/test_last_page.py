"""From how many rows on a page that is not full is copied whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvplan.plan.last_page import DESCRIPTOR_BYTES, whole_from
from kvplan.plan.match import MatchRule
from kvplan.plan.request import Request, runs
from kvplan.plan.types import Blocks, Group, GroupPair, Loop, Needs, Nest, PageRange, Table

ROWS, ROW, HEADS = 16, 256, 8
GROUP = Group("full", "tokens", tokens=ROWS, kernel=ROWS)
PAIR = GroupPair("full", page_rows=ROWS)
# Eight heads of a page, each with a row for every token; and rows with eight heads each.
HEADS_FIRST = Table(
    per_page=(Nest(("k",), bytes=HEADS * ROWS * ROW),),
    per_token=(
        Nest(("k",), bytes=ROW, loops=(Loop("head", HEADS, (0, ROWS * ROW), (0, ROWS * ROW)),), token_step=(ROW, ROW)),
    ),
)
TOKENS_FIRST = Table(
    per_page=(Nest(("k",), bytes=HEADS * ROWS * ROW),),
    per_token=(Nest(("k",), bytes=HEADS * ROW, token_step=(HEADS * ROW, HEADS * ROW)),),
)
# The pages of both sides differ within a row: each of its tokens is a span.
TURNED = Table(
    per_page=(Nest(("k",), bytes=ROWS * ROW),),
    per_token=(Nest(("k",), bytes=ROW, token_step=(ROW, 2 * ROW)),),
)


def least(table: Table, pair: GroupPair = PAIR, group: Group = GROUP) -> int:
    return whole_from(pair, (group, group), [table])


def test_heads_first_pays_from_the_first_row_on() -> None:
    assert least(HEADS_FIRST) == 1


def test_tokens_first_has_nothing_to_save() -> None:
    assert least(TOKENS_FIRST) == 0


def test_a_row_of_its_own_for_each_token_pays_from_the_second_one_on() -> None:
    assert least(TURNED) == 2


def test_a_large_page_pays_once_the_bytes_that_nobody_asked_for_are_few() -> None:
    """Seven descriptors are saved: as long as 112 KiB take."""
    row = 4 * DESCRIPTOR_BYTES
    page = (Nest(("k",), bytes=HEADS * ROWS * row),)
    token = (replace(HEADS_FIRST.per_token[0], bytes=row, token_step=(row, row)),)
    # One row that is missing has 8 times 64 KiB.
    assert least(Table(page, token)) == 0
    small = (replace(page[0], bytes=HEADS * ROWS * row // 16),)
    # Three missing rows of 32 KiB each are 96 KiB.
    assert least(Table(small, token)) == ROWS - 3


def test_tiles_are_as_many_spans_as_there_are() -> None:
    """A page of 16 rows in tiles of 4: of 9 rows three."""
    tiled = replace(HEADS_FIRST.per_token[0], loops=(), hops=((4, 4 * ROW, 0),))
    page = replace(HEADS_FIRST.per_page[0], bytes=ROWS * ROW)
    assert least(Table((page,), (tiled,))) == 5
    assert least(Table((replace(page, loops=(Loop("head", 2, (0, ROW), (0, ROW)),)),), (tiled,))) == 9


@pytest.mark.parametrize("strange", [
    {"pair": replace(PAIR, page_rows=0)},
    {"group": replace(GROUP, ring=4 * ROWS)},
    {"group": replace(GROUP, shards=2, chunk=ROWS)},
    {"table": replace(HEADS_FIRST, unpack=(PageRange(bytes=HEADS * ROWS * ROW),))},
    {"table": replace(HEADS_FIRST, pack=(PageRange(bytes=HEADS * ROWS * ROW),))},
])  # fmt: skip
def test_never(strange: dict[str, object]) -> None:
    """Different pages, rows that come round again, tokens on other workers, and bytes that are copied by a stage."""
    assert least(**{"table": HEADS_FIRST, **strange}) == 0  # type: ignore[arg-type]


def counts(
    tokens: tuple[int, int], some: list[tuple[int, int]] | None = None, least: int = 2, whole: bool = True
) -> list[int]:
    """How many rows each run of a request with pages of four tokens has."""
    group = Group("full", "tokens", tokens=4, kernel=4)
    tables = {"full": Blocks(0, np.array([5, 2, 7]))}, {"full": Blocks(0, np.array([1, 4, 3]))}
    request = Request("r", tokens, *tables, whole_last_page=whole)
    return runs(MatchRule(group, group), request, (0, 0), some, least).count.tolist()


@pytest.mark.parametrize(("tokens", "found"), [
    ((0, 7), [4, 4]),
    # Too few rows.
    ((0, 5), [4, 1]),
    # The first row of the page is decode's own.
    ((5, 7), [2]),
    ((1, 3), [2]),
    ((0, 8), [4, 4]),
    ((4, 4), []),
])  # fmt: skip
def test_the_last_page_is_whole_if_it_begins_in_the_request(tokens: tuple[int, int], found: list[int]) -> None:
    assert counts(tokens) == found


def test_a_last_page_that_may_not_be_whole_is_cut_where_the_request_ends() -> None:
    assert counts((0, 7), whole=False) == [4, 3]
    assert counts((0, 7), least=0) == [4, 3]


def test_a_chunk_that_ends_before_the_request_has_no_last_page() -> None:
    """The tokens behind the chunk may have arrived already."""
    assert counts((0, 11), [(4, 7)]) == [3]
    assert counts((0, 11), [(4, 11)]) == [4, 4]


def test_sinks_that_are_all_that_is_needed_are_no_last_page() -> None:
    """With a chunk that begins where the request ends nothing of it is needed; page 0 is not the last one."""
    group, needs = Group("full", "tokens", tokens=4, kernel=4), Needs(chunk=8, sink=2)
    tables = {"full": Blocks(0, np.array([5, 2]))}, {"full": Blocks(0, np.array([1, 4]))}
    rule, asked = MatchRule(group, group, needs), Request("r", (0, 8), *tables, whole_last_page=True)
    assert runs(rule, asked, (0, 0), None, 1).count.tolist() == [2]
    assert runs(rule, replace(asked, tokens=(0, 7)), (0, 0), None, 1).count.tolist() == [4, 4]


def test_what_is_kept_of_other_requests_of_a_shape_is_not_changed() -> None:
    assert [counts((0, 7)), counts((0, 7), whole=False)] == [[4, 4], [4, 3]]
