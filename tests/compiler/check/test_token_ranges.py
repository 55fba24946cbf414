"""Ranges of tokens that end anywhere: at, before and behind the ends of either side's kernel and logical blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache as once
from itertools import combinations
from random import Random

import pytest
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table, plain_ids
from tests.shares import share, with_rest

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.request import check
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import BadInput
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Plan

HEADS_FIRST = "layer { block { head { token { k[dim] } } } }"
TOKENS_FIRST = "layer { block { token { head { k[dim] } pad(1) } } }"
TILES = "layer { block { head { token/2 { dim { token%2 { k } } } } } }"


@dataclass(frozen=True, slots=True)
class Paging:
    """Tokens of a kernel block and kernel blocks of a logical block, and the order, of either side.

    `turns` are how many workers take turns of the tokens, and the tokens of a turn.
    """

    prefill: tuple[int, int]
    decode: tuple[int, int]
    orders: tuple[str, str] = (HEADS_FIRST, TOKENS_FIRST)
    turns: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1))

    @property
    def blocks(self) -> set[int]:
        """The sizes of all blocks, of turns and of their rounds, in tokens."""
        sizes = {size for kernel, ratio in (self.prefill, self.decode) for size in (kernel, kernel * ratio)}
        return sizes | {size for ways, chunk in self.turns if ways > 1 for size in (chunk, chunk * ways)}


PAGINGS = {
    "48 and 32": Paging((48, 1), (32, 1)),
    "32 and 48, one order": Paging((32, 1), (48, 1), (HEADS_FIRST, HEADS_FIRST)),
    "16 and 16": Paging((16, 1), (16, 1)),
    "16 and 16, one order": Paging((16, 1), (16, 1), (HEADS_FIRST, HEADS_FIRST)),
    "16 and 48, tiles": Paging((16, 1), (48, 1), (TILES, TOKENS_FIRST)),
    "128 and 64 over 64": Paging((64, 2), (64, 1)),
    "64 and 128 over 64, one order": Paging((64, 1), (64, 2), (HEADS_FIRST, HEADS_FIRST)),
    "131 and 261 kernel blocks": Paging((3, 131), (3, 261)),
    "261 and 131 kernel blocks, one order": Paging((3, 261), (3, 131), (HEADS_FIRST, HEADS_FIRST)),
    "1 and 4": Paging((1, 1), (4, 1)),
    "4 and 1": Paging((4, 1), (1, 1)),
}
TURNED = {
    "turns of one token": Paging((4, 2), (6, 1), turns=((2, 1), (1, 1))),
    "turns of a block on decode": Paging((16, 1), (8, 1), turns=((1, 1), (3, 8))),
    "turns of several blocks": Paging((4, 1), (4, 3), turns=((3, 12), (2, 8))),
    "uneven turns on both sides": Paging((6, 2), (8, 1), (HEADS_FIRST, HEADS_FIRST), ((2, 9), (3, 5))),
}
ALL = PAGINGS | TURNED


@once
def sides(paging: Paging) -> tuple[BoundSide, BoundSide]:
    """Two heads of two bytes on both sides; a worker for every turn."""
    pages = zip(paging.orders, (paging.prefill, paging.decode), paging.turns, strict=True)
    prefill, decode = (_side(*page) for page in pages)
    return prefill, decode


def _side(text: str, block: tuple[int, int], turns: tuple[int, int]) -> BoundSide:
    c = cache(text, tensor("k", 1, head=2, token=0, dim=2), kernel=block[0])
    return side([c], [group((c, c.layers), ratio=block[1])], tp=turns[0], dcp=turns[0], chunk=turns[1])


@once
def plan(paging: Paging) -> Plan:
    return compile_bound(*sides(paging)).plan


def moved(paging: Paging, request: Request) -> Verdict:
    """The verdict on the plan's copies for a request, which must fit both sides."""
    check(request, *sides(paging))
    return simulate(plan(paging), *sides(paging), copies(plan(paging), request), request)


def ends(paging: Paging) -> list[int]:
    """Tokens ≡ 0, 1 and −1 to every block, around the first three of each."""
    return sorted({n * size + rest for size in paging.blocks for n in range(3) for rest in (0, 1, size - 1)})


@with_rest("eighth")
@pytest.mark.parametrize("name", ALL)
def test_both_ends_at_every_residue(name: str, rest: bool) -> None:
    """Every eighth range, from another one on from paging to paging; the others in `make test-all`."""
    paging = ALL[name]
    ranges = list(combinations(ends(paging), 2))
    for size in paging.blocks:
        assert {first % size for first, _ in ranges} >= {0, 1 % size, size - 1}
        assert {end % size for _, end in ranges} >= {0, 1 % size, size - 1}
    for number, tokens in share(enumerate(ranges), list(ALL).index(name), 8, rest):
        report = moved(paging, sample_request(*sides(paging), tokens, number))
        assert report.right, f"{tokens}: {report.text()}"
        assert report.bytes == 4 * (tokens[1] - tokens[0])


@pytest.mark.parametrize("name", ALL)
def test_single_tokens_and_whole_hits(name: str) -> None:
    paging = ALL[name]
    for token in ends(paging):
        one = moved(paging, sample_request(*sides(paging), (token, token + 1), token))
        assert (one.right, one.bytes) == (True, 4), f"token {token}: {one.text()}"
        none = moved(paging, sample_request(*sides(paging), (token, token), token))
        assert (none.right, none.copies) == (True, 0)


def table(size: int, first: int, end: int, order: Random, begin: int | None = None, behind: int = 0) -> Blocks:
    """Block ids in no order for tokens [first, end); the table begins at `begin`, with nulls before the first needed.

    `behind` blocks follow the last one needed.
    """
    low, high = first // size, -(-end // size) + behind
    begin = low if begin is None else begin
    ids: list[int | None] = list(order.sample(range(3 * high + 3), high - begin))
    return block_table(begin, tuple([None] * (low - begin) + ids[low - begin :]))


@pytest.mark.parametrize("name", PAGINGS)
@pytest.mark.parametrize("clipped", ["prefill", "decode", "both", "neither"])
def test_tables_clipped_differently(name: str, clipped: str) -> None:
    paging, order = PAGINGS[name], Random(7)
    sizes = paging.prefill[0] * paging.prefill[1], paging.decode[0] * paging.decode[1]
    top = 2 * max(sizes)
    for first, end in ((top - 1, top + 2), (top // 2 + 1, top), (1, top + 1)):
        begin = {word: None if clipped in (word, "both") else 0 for word in ("prefill", "decode")}
        tables = {w: {"c": table(s, first, end, order, begin[w])} for w, s in zip(begin, sizes, strict=True)}
        report = moved(paging, ask((first, end), tables["prefill"], tables["decode"]))
        assert (report.right, report.bytes) == (True, 4 * (end - first)), report.text()


@pytest.mark.parametrize("name", PAGINGS)
def test_more_decode_blocks_than_prefill_blocks(name: str) -> None:
    """Decode has blocks for tokens to come: they are not written, and prefill needs none of them."""
    paging, order = PAGINGS[name], Random(8)
    sizes = paging.prefill[0] * paging.prefill[1], paging.decode[0] * paging.decode[1]
    for end in (1, sizes[0], sizes[1], sizes[0] + 1, 2 * sizes[0] - 1):
        prefill = {"c": table(sizes[0], 0, end, order)}
        decode = {"c": table(sizes[1], 0, end, order, behind=len(prefill["c"].ids) + 1)}
        assert len(decode["c"].ids) > len(prefill["c"].ids)
        report = moved(paging, ask((0, end), prefill, decode))
        assert (report.right, report.bytes) == (True, 4 * end), report.text()


@pytest.mark.parametrize("word", ["prefill", "decode"])
@pytest.mark.parametrize("name", PAGINGS)
def test_a_block_short_is_refused(name: str, word: str) -> None:
    paging, order = PAGINGS[name], Random(9)
    sizes = {"prefill": paging.prefill[0] * paging.prefill[1], "decode": paging.decode[0] * paging.decode[1]}
    first, end = sizes[word] - 1, sizes[word] + 1
    tables = {w: {"c": table(s, first, end, order)} for w, s in sizes.items()}
    whole = ask((first, end), tables["prefill"], tables["decode"])
    assert moved(paging, whole).right
    ids = plain_ids(tables[word]["c"].ids)
    shorts = (0, ids[:-1]), (1, ids[1:]), (0, [None, *ids[1:]]), (0, [ids[0], None])
    for short in (block_table(*written) for written in shorts):
        asked = replace(whole, prefill={"c": short}) if word == "prefill" else replace(whole, decode={"c": short})
        with pytest.raises(BadInput) as caught:
            moved(paging, asked)
        assert caught.value.code == "Q011"
