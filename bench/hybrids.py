"""A hybrid model's attention and states between two tensor parallel sizes: against one descriptor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvplan.bench.descriptors import in_order, tables
from kvplan.bench.peer import SECONDS, met, prefill_blocks
from kvplan.bench.report import Row, within
from kvplan.bench.sample import WARMUP, interleave

if TYPE_CHECKING:
    from kvplan.plan.types import Plan, Side
    from kvplan.runtime import Request

AREA = "hybrid models"
MODEL, SIDES = "nemotron-3-nano-30b", (("tp=4", "tp=1"), ("tp=1", "tp=4"))
# The most that it may take of one merged descriptor's time.
MOST = 1 / 0.9
# States are 48 MiB of each request of any length.
TOKENS = (2048, 32768)


def measure(pairs: int) -> list[Row]:
    """Compare submit to done with reading as many bytes by hand as one descriptor."""
    return [_row(pairs, *sides, tokens) for sides in SIDES for tokens in TOKENS]


def _row(pairs: int, prefill: str, decode: str, tokens: int) -> Row:
    with met(MODEL, prefill, decode, partial(_blocks, tokens=tokens), 1 + WARMUP + pairs) as pair:
        requests = iter([_request(pair.plan, pair.blocks, tokens, name) for name in pair.names])

        def ours() -> int:
            return pair.decode.submit(next(requests), SECONDS).wait().bytes

        size = ours()
        ratio = interleave(ours, pair.first(size), pairs, WARMUP)
    name = f"{MODEL} {prefill} -> {decode}, {tokens:,} tokens, {size >> 20} MiB"
    return within(AREA, name, ratio, MOST)


def _blocks(plan: Plan, tokens: int) -> int:
    """Return the fewest decode blocks with which all groups of both sides have separate blocks."""
    blocks = 1
    while prefill_blocks(plan, blocks) < _needed(plan.prefill, tokens) or blocks < _needed(plan.decode, tokens):
        blocks += 1
    return blocks


def _needed(side: Side, tokens: int) -> int:
    return sum(-(-tokens // group.tokens) if group.tokens else 1 for group in side.groups)


def _request(plan: Plan, blocks: int, tokens: int, name: str) -> Request:
    from kvplan.runtime import Request

    prefill = tables(plan.prefill.groups, in_order, tokens, prefill_blocks(plan, blocks))
    return Request(name, (0, tokens), prefill, tables(plan.decode.groups, in_order, tokens, blocks))
