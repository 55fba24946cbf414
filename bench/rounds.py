"""A request of a few blocks: the cost of confirmation, against the same bytes and as many bare round trips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.bench.peer import SECONDS, met
from kvplan.bench.report import Row, within
from kvplan.bench.sample import WARMUP, interleave

if TYPE_CHECKING:
    from kvplan.runtime.control.lines import PrefillLine

AREA = "small requests"
ROUNDS = 2
# Model, side, blocks, and the target. The first worker of many stages has one layer: a page of 64 KiB.
CASES = (("llama-3.1-8b", "tp=1", 4, 1.15), ("qwen3-0.6b", "pp=28", 1, 1.5))


def measure(pairs: int) -> list[Row]:
    """Compare submit to done with reading the same bytes by hand between two round trips of empty claims.

    A request must make these round trips: held before the first read, kept after the last one.
    """
    return [_case(*case, pairs) for case in CASES]


def _case(model: str, side: str, blocks: int, most: float, pairs: int) -> Row:
    with met(model, side, side, lambda _: blocks, WARMUP + pairs) as pair:
        (line,) = pair.decode.half.engines.lines

        def bare() -> None:
            round_trip(line)
            pair.by_hand.read()
            round_trip(line)

        size = len(pair.memory) >> 10
        return within(AREA, f"{size} KiB, {ROUNDS} round trips", interleave(pair.move, bare, pairs, WARMUP), most)


def round_trip(line: PrefillLine) -> None:
    """Send an empty claim and wait for the answer."""
    from kvplan.runtime.control.messages import Claim

    line.send(Claim(0, ()))
    line.flush()
    while not line.receive(1):
        line.wait(SECONDS)
