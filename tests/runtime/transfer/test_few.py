"""A few descriptors go by address, in one transfer: the same ones as by index, whatever is asked for at once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from kvplan.bench.stage import here, plan_of
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.types import Runs
from kvplan.runtime.transfer.gather import FEW, IndexScratch, gather
from kvplan.runtime.transfer.prepare import PreparedLink

BLOCKS = 9


@cache
def link() -> PreparedLink:
    """Four groups of states and one of attention."""
    return here(plan_of("nemotron-3-nano-30b", "tp=2", "tp=1"), BLOCKS)


def blocks(*pairs: tuple[int, int], tokens: int = 1) -> Runs:
    """A block of so many tokens, or a slot, of either side for every pair."""
    if not pairs:
        return NO_RUNS
    p, d = np.array(pairs, np.int64).T
    return Runs(p, np.zeros_like(p), d, np.zeros_like(d), np.full_like(p, tokens))


def posted(runs: dict[str, Runs], few: int) -> list[tuple[int, ...]]:
    """(remote address, local address, bytes) of every descriptor."""
    load = gather(link(), runs, IndexScratch(), few)
    banks: list[Any] = list(load.banks)
    sides = [(bank.remote.at(remote), bank.local.at(local)) for bank, local, remote in banks]
    rows = [
        (t[0], h[0], h[1])
        for there, here in [*sides, (load.remote_spans, load.local_spans)]
        for t, h in zip(there, here, strict=True)
    ]
    assert len(rows) == load.descriptors <= load.spans
    return sorted(tuple(map(int, row)) for row in rows)


@pytest.mark.parametrize("every", [[(3, 5)], [(0, 0)], [(BLOCKS - 1, 0)], [(1, 2), (4, 7)], []])
@pytest.mark.parametrize("others", [[(6, 1)], [(6, 1), (7, 3)], []])
@pytest.mark.parametrize("pages", [[], [(2, 8)], [(0, 3), (5, 4), (6, 6)], [(7, 3), (8, 4)]])
def test_by_address_and_by_index_the_same_is_posted(every: list[Any], others: list[Any], pages: list[Any]) -> None:
    """`others` are the slots of one group, which may have come in a chunk of other layers."""
    states = sorted({entry.pair.name for entry in link().entries if not entry.token})
    (attention,) = {entry.pair for entry in link().entries if entry.token}
    runs = {name: blocks(*every) for name in states} | {states[-1]: blocks(*others)}
    runs[attention.name] = blocks(*pages, tokens=attention.page)
    assert posted(runs, 0) == posted(runs, FEW)


def test_states_and_pages_are_one_transfer() -> None:
    (attention,) = {entry.pair for entry in link().entries if entry.token}
    names = sorted({entry.pair.name for entry in link().entries} - {attention.name})
    runs = {name: blocks((number, 8 - number)) for number, name in enumerate(names)}
    runs[attention.name] = blocks((7, 2), (5, 1), tokens=attention.page)
    load = gather(link(), runs, IndexScratch())
    assert (len(load.banks), len(load.batches)) == (0, 1)
    counts = {entry.pair.name: len(runs[entry.pair.name].count) for entry in link().entries}
    assert load.bytes == sum(entry.page_bytes * counts[entry.pair.name] for entry in link().entries)
    assert gather(link(), runs, IndexScratch(), load.spans - 1).banks


def test_many_blocks_go_by_index() -> None:
    scattered = [(number, (number * 7) % BLOCKS) for number in range(BLOCKS)]
    (attention,) = {entry.pair for entry in link().entries if entry.token}
    runs = {entry.pair.name: NO_RUNS for entry in link().entries}
    runs[attention.name] = blocks(*scattered[1:-1], tokens=attention.page)
    assert not len(gather(link(), runs, IndexScratch(), 0).local_spans)
    assert not gather(link(), runs, IndexScratch()).banks
