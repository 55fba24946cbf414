"""Pages of different order or size, 64 MiB for one decode worker: staged, straight, and as one merged descriptor."""

from __future__ import annotations

from functools import partial

from kvplan.bench.peer import blocks_of, met
from kvplan.bench.report import Row, faster, within
from kvplan.bench.sample import WARMUP, interleave

AREA = "different pages, through a stage"
MODEL, BYTES = "llama-3.1-8b", 64 << 20
# The least gain of a stage over going straight, and the most that it may take of one merged descriptor's time.
LEAST, MOST = 4.0, 1 / 0.35
CASES = (
    ("pull, heads first tp=4 to tokens first tp=2", "tp=4,order=hnd", "tp=2,order=nhd", "unpack", "pull"),
    ("pull, tokens first tp=2 to heads first tp=4, packed", "tp=2,order=nhd", "tp=4,order=hnd", "pack", "pull"),
    ("push, tokens first tp=2 to heads first tp=4", "tp=2,order=nhd", "tp=4,order=hnd", "pack", "push"),
    ("push, heads first tp=4 to tokens first tp=2, unpacked", "tp=4,order=hnd", "tp=2,order=nhd", "unpack", "push"),
    ("pull, blocks of 16 tp=4 to 64 tp=2", "tp=4,order=nhd,block=16", "tp=2,order=nhd,block=64", "unpack", "pull"),
    ("pull, blocks of 64 tp=4 to 16 tp=2", "tp=4,order=nhd,block=64", "tp=2,order=nhd,block=16", "unpack", "pull"),
)


def measure(pairs: int) -> list[Row]:
    """Compare submit to done with the same without a stage, and with moving as many bytes by hand."""
    return [row for case in CASES for row in _rows(pairs, *case)]


def _rows(pairs: int, title: str, prefill: str, decode: str, strategy: str, mode: str) -> list[Row]:
    sides = partial(met, MODEL, prefill, decode, blocks_of(BYTES), 2 * (WARMUP + pairs), mode=mode)
    with sides(strategy=strategy) as staged, sides() as straight:
        # Writing takes longer than reading, so pushes are compared with writes.
        by_hand = staged.by_hand.write if mode == "push" else staged.by_hand.read
        won = interleave(staged.move, straight.move, pairs, WARMUP)
        bound = interleave(staged.move, by_hand, pairs, WARMUP)
    return [
        faster(AREA, f"{title}, against straight", won, LEAST),
        within(AREA, f"{title}, one descriptor", bound, MOST),
    ]
