"""The units for which spans are counted: a run of tokens is one span only if its tokens adjoin on both sides."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.cost.cost import plan_cost
from kvplan.dsl.library import load
from kvplan.plan.types import Nest

CLOSE = Nest(("k",), bytes=256, token_step=(256, 256))
APART = Nest(("v",), bytes=256, token_step=(512, 256))
TILED = replace(CLOSE, hops=((8, 256, 0),))


@pytest.mark.parametrize(
    ("nests", "rows", "unit", "times"),
    [
        ((CLOSE,), 1, "run of tokens", 64),
        ((APART,), 1, "token", 1024),
        ((APART,), 4, "row of 4 tokens", 256),
        ((TILED,), 1, "tile", 0),
        ((CLOSE, APART), 1, "run of tokens or token", 0),
    ],
)
def test_spans_are_counted_for_the_tokens_that_have_them(
    nests: tuple[Nest, ...], rows: int, unit: str, times: int
) -> None:
    plan = compile_pair(load(), "qwen3-0.6b", "tp=1", "tp=1,block=32").plan
    pairs = tuple(replace(pair, rows=rows, page_rows=0) for pair in plan.group_pairs)
    ((read,),) = plan.reads
    read = replace(read, table=replace(read.table, per_page=(), per_token=nests))
    (move,) = plan_cost(replace(plan, group_pairs=pairs, reads=((read,),))).moves
    assert (move.unit, move.times, move.spans) == (unit, times, len(nests))


def test_descriptors_of_a_cut_block_are_told_beside_those_of_whole_ones() -> None:
    """A window begins within a block: the spans of a whole block, times their number, are not all."""
    text = compile_pair(load(), "gemma-3-27b", "tp=2", "tp=1").text
    figures = (
        r"in ([\d,]+) descriptors; 2 reads, together ([\d,]+) spans of all layers for each of (\d+) whole blocks, "
    )
    found = re.findall(rf"{figures}and ([\d,]+) for the rest", " ".join(text.split()))
    assert found
    for row in found:
        descriptors, spans, blocks, rest = (int(count.replace(",", "")) for count in row)
        assert descriptors == spans * blocks + rest
