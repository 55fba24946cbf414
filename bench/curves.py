"""Curves: the growth of kvplan's costs with tokens, tensor parallel size, peers, and requests at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import cast

import numpy as np

from kvplan.bench.many import KIB, rates
from kvplan.bench.preparing import linker
from kvplan.bench.report import Row
from kvplan.bench.sample import clock
from kvplan.bench.stage import here, library, nixl_missing, plan_of

AREA = "curves"
LARGE = "llama-3.3-70b"
TOKENS = tuple(1024 * 4**n for n in range(6))
SIZES = tuple(2**n for n in range(7))
PEERS = tuple(4**n for n in range(5))
# In parts, because prefill holds all requests of a run of `rates` from its start.
AT_ONCE = ((1, 2, 4), (8, 16), (32, 64))
BLOCKS, LEAST = 1000, 3
Curve = list[tuple[float, float]]


def measure(pairs: int) -> list[Row]:
    """Measure points (x, y) of every curve into its row's details; the value is the last point."""
    times = max(LEAST, pairs // 3)
    by_tokens = [(f"{p} -> {d}", partial(_tokens, p, d, times)) for p, d in (("tp=1", "tp=1"), ("tp=4", "tp=1"))]
    rows = [_row("tokens of a request", "block ids to what is posted, ms", name, make()) for name, make in by_tokens]
    rows += [_row("tensor parallel size", "one compile, ms", "tp=n -> tp=n", _sizes(times))]
    if nixl_missing():
        return rows
    rows += [_row("peers", "preparing all of them, ms", "tp=8 -> tp=4", _peers(times))]
    return [*rows, _row("requests at once", f"requests of {KIB} KiB a second", "one peer", _load())]


def _row(along: str, what: str, name: str, curve: Curve) -> Row:
    x, y = curve[-1]
    details: dict[str, object] = {"along": along, "what": what, "name": name, "curve": curve}
    return Row(AREA, f"{what}, {name}", f"{y:,.2f} at {x:,.0f} {along}", details=details)


def _middle(action: Callable[[], object], times: int) -> float:
    """Return the median milliseconds of some calls, after one that is not counted."""
    action()
    return 1e3 * median(clock(action) for _ in range(times))


def _tokens(prefill: str, decode: str, times: int) -> Curve:
    """Measure from two lists of shuffled block ids to indices of prepared lists."""
    from kvplan.plan.match import rule_of
    from kvplan.plan.types import Blocks
    from kvplan.runtime.transfer.gather import IndexScratch, gather

    plan = plan_of(LARGE, prefill, decode)
    (pair,), size, scratch = plan.group_pairs, plan.decode.groups[0].tokens, IndexScratch()
    link, random = here(plan, blocks=2 * TOKENS[-1] // size), np.random.default_rng(5)

    def posted(tokens: int, lists: Sequence[list[int]]) -> object:
        there, mine = (Blocks(0, np.array(one, np.int64)) for one in lists)
        return gather(link, {pair.name: rule_of(plan, pair).runs((0, tokens), there, mine)}, scratch)

    found = []
    for tokens in TOKENS:
        lists = [random.permutation(2 * TOKENS[-1] // size)[: tokens // size].tolist() for _ in range(2)]
        found.append((float(tokens), _middle(partial(posted, tokens, lists), times)))
    return found


def _sizes(times: int) -> Curve:
    from kvplan.compiler.api import compile_pair

    return [
        (float(size), _middle(partial(compile_pair, library(), LARGE, f"tp={size}", f"tp={size}"), times))
        for size in SIZES
    ]


def _peers(times: int) -> Curve:
    """Measure expanding and preparing every peer's reads; all are kept until the last one is ready."""
    prepare = linker(plan_of(LARGE, "tp=8", "tp=4"), BLOCKS)

    def all_of(count: int) -> None:
        for link in [prepare() for _ in range(count)]:
            link.release()

    return [(float(count), _middle(partial(all_of, count), times)) for count in PEERS]


def _load() -> Curve:
    found = [both for some in AT_ONCE for both in zip(some, rates(some), strict=True)]
    return [(float(at_once), median(cast(list[float], row.details["rates"]))) for at_once, row in found]
