"""Pages of unlike order or size, 64 MiB for one decode worker: through a stage, straight, and as one merged request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kvplan.bench.homogeneous import request
from kvplan.bench.peer import SECONDS, PeerPair, met
from kvplan.bench.report import Row, faster, skipped, within
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import library, nixl_missing, room, write_plan

if TYPE_CHECKING:
    from kvplan.plan.types import Plan

AREA = "unlike pages, by way of a stage"
MODEL, BYTES = "llama-3.1-8b", 64 << 20
# What a stage wins over going straight, and what it may take of one merged request's time.
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
    """Submit to done, against the same without a stage, and against moving as many bytes that way by hand."""
    if why := nixl_missing():
        return [skipped(AREA, why)]
    return [row for case in CASES for row in _rows(pairs, *case)]


def _rows(pairs: int, title: str, prefill: str, decode: str, strategy: str, mode: str) -> list[Row]:
    with (
        _moves(pairs, prefill, decode, strategy, mode) as (ours, raw),
        _moves(pairs, prefill, decode, "direct", mode) as (straight, _),
    ):
        won = interleave(ours, straight, pairs, WARMUP)
        bound = interleave(ours, raw, pairs, WARMUP)
    return [faster(AREA, f"{title}, against straight", won, LEAST), within(AREA, f"{title}, one request", bound, MOST)]


@contextmanager
def _moves(
    pairs: int, prefill: str, decode: str, strategy: str, mode: str
) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """A request's transfer, and as many bytes moved as one request, between processes of their own."""
    with TemporaryDirectory() as folder:
        path, plan = write_plan(library(), folder, MODEL, prefill, decode, strategy)
        blocks = BYTES // room(plan.decode, 0, 1)
        names = [f"request-{number}" for number in range(2 * (WARMUP + pairs))]
        with met(path, blocks, names, mode=mode) as pair:
            # Writing takes longer than reading: what is pushed is held against what is written.
            yield (
                _transfer(pair, plan, blocks, iter(names)),
                pair.by_hand.write if mode == "push" else pair.by_hand.read,
            )


def _transfer(pair: PeerPair, plan: Plan, blocks: int, names: Iterator[str]) -> Callable[[], object]:
    return lambda: pair.decode.submit(request(plan, blocks, next(names)), SECONDS).wait()
