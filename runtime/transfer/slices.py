"""Slices: cut what one link moves for a request into pieces that are small enough to be posted by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kvplan.plan import spans
from kvplan.plan.types import Ints, Runs
from kvplan.runtime.staging.lent import LentMove
from kvplan.runtime.staging.staged import ImagePart, StagedMove, StagedPiece, edges, pieces
from kvplan.runtime.transfer.prepared import PreparedLink, PreparedRead

# Each piece has its runs by pair, and its bytes.
Pieces = list[tuple[dict[str, Runs], int]]
Wanted = list[tuple[ImagePart, Runs]]


def size(link: PreparedLink, runs: Mapping[str, Runs]) -> int:
    """Return the bytes that `runs` by pair move over a link."""
    parts = dict[object, tuple[int, int]]()
    total = 0
    for entry in link.entries:
        if spans.is_whole(entry.read.table):
            total += len(entry.own(runs[entry.pair.name]).count) * entry.page_bytes
            continue
        key = entry.pair.name, not entry.read.table.per_page, entry.within
        if key not in parts:
            parts[key] = _counts(entry, entry.own(runs[entry.pair.name]))
        pages, tokens = parts[key]
        total += pages * entry.page_bytes + tokens * entry.token_bytes
    return total


def _counts(entry: PreparedRead, runs: Runs) -> tuple[int, int]:
    """Return how many runs are whole pages, and how many rows of tokens the others have."""
    whole = spans.whole_pages(entry.pair.page_rows, entry.read.table, runs)
    pages = int(np.count_nonzero(whole))
    tokens = 0 if pages == len(whole) else int(runs.count[~whole].sum())
    return pages, tokens


def cut(link: PreparedLink, runs: Mapping[str, Runs], most: int) -> Pieces:
    """Return `runs` by pair in pieces of at most `most` bytes, pair after pair, with the bytes of each.

    It is empty if nothing moves. If all fits, it is one piece of the same arrays. A run is never cut: one of more bytes
    is a separate piece. If a pair is cut, its runs are sorted by decode block, so that adjacent blocks stay together.
    """
    total = size(link, runs)
    if total <= most:
        return [({entry.pair.name: runs[entry.pair.name] for entry in link.entries}, total)] if total else []
    costs = _costs(link, runs)
    sorted_, weights = _in_order({pair: runs[pair] for pair in costs}, costs)
    starts = np.cumsum([0, *(len(cost) for cost in weights.values())])
    weight = np.concatenate(list(weights.values()))
    return [
        (
            {
                pair: Runs(*(column[max(low - at, 0) : max(high - at, 0)] for column in sorted_[pair]))
                for pair, at in zip(weights, starts[:-1].tolist(), strict=True)
            },
            int(weight[low:high].sum()),
        )
        for low, high in pairwise(edges(weight, most))
    ]


def through_stage(
    link: PreparedLink, runs: Mapping[str, Runs], request: str = ""
) -> tuple[PreparedLink | None, list[StagedMove | LentMove]]:
    """Return a link with the reads that move directly, None if none does, and the moves of `runs` through a stage."""
    staged = [entry for entry in link.entries if link.stages(entry)]
    # Compare by identity: `stages` may change between two calls, and entries hold arrays.
    through = {id(entry) for entry in staged}
    direct = tuple(entry for entry in link.entries if id(entry) not in through)
    alone = replace(link, entries=direct) if direct else None
    own, lent = Wanted(), Wanted()
    for entry in staged:
        wanted = lent if link.at_peer(entry) else own
        wanted += [(part, runs[entry.pair.name]) for part in entry.parts if len(runs[entry.pair.name].count)]
    return alone, [*_own_moves(link, own), *_lent_moves(link, lent, request)]


def _own_moves(link: PreparedLink, wanted: Wanted) -> list[StagedMove]:
    if (stage := link.stage) is None:
        return []
    cut = _by_memory(wanted, stage.buffer_bytes)
    return [StagedMove(stage.of(piece.memory), piece, link.peer, link.push) for piece in cut]


def _lent_moves(link: PreparedLink, wanted: Wanted, request: str) -> list[LentMove]:
    if (stage := link.peer_stage) is None:
        return []
    return [LentMove(stage, piece, request, link.layers) for piece in _by_memory(wanted, stage.buffer_bytes)]


def _by_memory(wanted: Wanted, most: int) -> list[StagedPiece]:
    """Return pieces of the wanted runs, each for a buffer in one memory."""
    memories = dict.fromkeys(part.memory for part, _ in wanted)
    return [piece for one in memories for piece in pieces([each for each in wanted if each[0].memory == one], most)]


def _costs(link: PreparedLink, runs: Mapping[str, Runs]) -> dict[str, Ints]:
    """Return the bytes of every run by pair, for the pairs that the link moves."""
    found: dict[str, Ints] = {}
    for entry in link.entries:
        name = entry.pair.name
        found[name] = found.get(name, np.zeros(len(runs[name].count), np.int64)) + _cost(entry, runs[name])
    return found


def _cost(entry: PreparedRead, runs: Runs) -> Ints:
    whole = spans.whole_pages(entry.pair.page_rows, entry.read.table, runs)
    cost: Ints = np.where(whole, entry.page_bytes, runs.count * entry.token_bytes) * entry.moves(runs)
    return cost


def _in_order(runs: Mapping[str, Runs], costs: Mapping[str, Ints]) -> tuple[dict[str, Runs], dict[str, Ints]]:
    order = {pair: np.lexsort((one.decode_token, one.decode_block)) for pair, one in runs.items()}
    found = {pair: Runs(*(column[order[pair]] for column in one)) for pair, one in runs.items()}
    return found, {pair: costs[pair][order[pair]] for pair in runs}
