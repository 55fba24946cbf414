"""States by one list: the same requests as by address, whatever is asked for at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from kvplan.bench.stage import here, plan_of
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.types import Runs
from kvplan.runtime.transfer.gather import IndexScratch, gather
from kvplan.runtime.transfer.prepare import PreparedLink

BLOCKS = 9


@cache
def link() -> PreparedLink:
    """Four groups of states and one of attention."""
    return here(plan_of("nemotron-3-nano-30b", "tp=2", "tp=1"), BLOCKS)


def slots(*pairs: tuple[int, int]) -> Runs:
    """A slot of either side for every request."""
    if not pairs:
        return NO_RUNS
    p, d = np.array(pairs, np.int64).T
    return Runs(p, np.zeros_like(p), d, np.zeros_like(d), np.ones_like(p))


def posted(one: PreparedLink, runs: dict[str, Runs]) -> list[tuple[int, ...]]:
    """(remote address, local address, bytes) of every request."""
    load = gather(one, runs, IndexScratch())
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
def test_by_slots_and_by_address_the_same_is_posted(
    every: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    """`others` are the slots of one group, which may have come in a chunk of other layers."""
    assert link().slots is not None
    names = sorted({entry.pair.name for entry in link().entries})
    runs = {name: slots(*every) for name in names} | {names[-1]: slots(*others), "attention": NO_RUNS}
    by_address = replace(link(), slots=None, others=link().entries)
    assert posted(link(), runs) == posted(by_address, runs)


def test_the_states_of_a_link_are_one_transfer() -> None:
    runs = {entry.pair.name: slots((number, 8 - number)) for number, entry in enumerate(link().entries)}
    load = gather(link(), runs | {"attention": NO_RUNS}, IndexScratch())
    assert (len(load.banks), len(load.local_spans)) == (1, 0)
    assert load.bytes == sum(entry.page_bytes for entry in link().entries if not entry.token)
