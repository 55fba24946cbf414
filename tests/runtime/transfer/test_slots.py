"""Slots of states go by address: those of all groups in one transfer, with what else goes by address."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from kvplan.bench.stage import here, plan_of
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.types import Runs
from kvplan.runtime.transfer.gather import GatheredSpans, IndexScratch, gather
from kvplan.runtime.transfer.prepared import PreparedLink

BLOCKS = 9


@cache
def link(prefill: str = "tp=2") -> PreparedLink:
    """Four groups of states and one of attention."""
    return here(plan_of("nemotron-3-nano-30b", prefill, "tp=1"), BLOCKS)


def blocks(*pairs: tuple[int, int], tokens: int = 1) -> Runs:
    """A block of so many tokens, or a slot, of either side for every pair."""
    if not pairs:
        return NO_RUNS
    p, d = np.array(pairs, np.int64).T
    return Runs(p, np.zeros_like(p), d, np.zeros_like(d), np.full_like(p, tokens))


def load(**runs: Runs) -> GatheredSpans:
    """The spans of some groups, nothing of the others."""
    return gather(link(), {entry.pair.name: NO_RUNS for entry in link().entries} | runs, IndexScratch())


def posted(load: GatheredSpans) -> list[tuple[int, ...]]:
    """(remote address, local address, bytes) of every descriptor."""
    banks: list[Any] = list(load.banks)
    sides = [(bank.remote.at(remote), bank.local.at(local)) for bank, local, remote in banks]
    rows = [
        (t[0], h[0], h[1])
        for there, here in [*sides, (load.remote_spans, load.local_spans)]
        for t, h in zip(there, here, strict=True)
    ]
    assert len(rows) == load.descriptors <= load.spans
    return sorted(tuple(map(int, row)) for row in rows)


def pairs() -> tuple[Any, list[str]]:
    """The pair of attention, and the names of those of states."""
    (attention,) = {entry.pair for entry in link().entries if entry.token}
    return attention, sorted({entry.pair.name for entry in link().entries} - {attention.name})


@pytest.mark.parametrize("every", [[(3, 5)], [(0, 0)], [(BLOCKS - 1, 0)], [(1, 2), (4, 7)], []])
@pytest.mark.parametrize("others", [[(6, 1)], [(6, 1), (7, 3)], []])
@pytest.mark.parametrize("pages", [[], [(2, 8)], [(0, 3), (5, 4)]])
def test_together_and_group_by_group_the_same_is_posted(every: list[Any], others: list[Any], pages: list[Any]) -> None:
    """`others` are the slots of one group, which may have come in a chunk of other layers."""
    attention, states = pairs()
    runs = {name: blocks(*every) for name in states} | {states[-1]: blocks(*others)}
    runs[attention.name] = blocks(*pages, tokens=attention.page_rows)
    alone = [load(**{name: some}) for name, some in runs.items()]
    assert posted(load(**runs)) == sorted(row for one in alone for row in posted(one))
    assert load(**runs).bytes == sum(one.bytes for one in alone)


def test_slots_and_pages_in_order_are_one_transfer() -> None:
    attention, states = pairs()
    runs = {name: blocks((number, 8 - number)) for number, name in enumerate(states)}
    runs[attention.name] = blocks((5, 1), (6, 2), tokens=attention.page_rows)
    found = gather(link("tp=1"), runs, IndexScratch())
    assert (len(found.banks), len(found.batches)) == (0, 1)
    counts = {attention.name: 2}
    assert found.bytes == sum(entry.page_bytes * counts.get(entry.pair.name, 1) for entry in link("tp=1").entries)
