"""The copies of one request, span by span, as a plan gives them, before adjacent spans are merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvplan.plan import expand as rows
from kvplan.plan import planes as names
from kvplan.plan.types import Group, GroupPair, Ints, Plan, Read, Runs, Side, Table


def copies(plan: Plan, decode_worker: int, read: Read, runs: Runs) -> Ints:
    """Return rows (prefill plane, prefill offset, decode plane, decode offset, bytes) of `read` over `runs`.

    Offsets count from the plane's base. A whole page uses the page table, every other run the token table.
    """
    pair = pair_named(plan, read.groups)
    strides = names.strides(plan.prefill.workers[read.worker]), names.strides(plan.decode.workers[decode_worker])
    whole = whole_pages(pair.page_rows, read.table, runs)
    page, token = rows.of_read(read)
    return np.concatenate(
        [page_spans(page, pick(runs, whole), *strides), token_spans(token, pick(runs, ~whole), *strides)]
    )


def pair_named(plan: Plan, name: str) -> GroupPair:
    """Return the pair of groups of that name."""
    return next(pair for pair in plan.group_pairs if pair.name == name)


def group_named(side: Side, name: str) -> Group:
    """Return the group of that name. Raises KeyError."""
    for group in side.groups:
        if group.name == name:
            return group
    raise KeyError(name)


def page_rows(group: Group, tokens: int) -> int:
    """Return the rows of `tokens` tokens in a page of a group, 1 for a state."""
    return group.kernel // tokens if group.store == "tokens" else 1


def is_whole(table: Table) -> bool:
    """Whether all runs use the page table: true for states, which have no tokens to cut."""
    return not table.per_token


def whole_pages(page: int, table: Table, runs: Runs) -> npt.NDArray[np.bool_]:
    """Return a mask of the runs that use the page table: pages full on both sides, or all runs of a whole table."""
    if is_whole(table):
        return np.ones(len(runs.count), np.bool_)
    if not page or not table.per_page:
        return np.zeros(len(runs.count), np.bool_)
    # A run lies in one block on either side, so a run as long as a page is a whole page.
    whole: npt.NDArray[np.bool_] = runs.count == page
    return whole


def page_spans(table: Ints, runs: Runs, prefill: Ints, decode: Ints) -> Ints:
    """Return every row of a page table at every block of `runs`; `prefill` and `decode` are block strides by plane."""
    span = np.empty((len(table), len(runs.count), 5), np.int64)
    span[:] = table[:, None, : rows.P_TOKEN]
    span[:, :, rows.P_OFFSET] += prefill[table[:, rows.P_PLANE], None] * runs.prefill_block
    span[:, :, rows.D_OFFSET] += decode[table[:, rows.D_PLANE], None] * runs.decode_block
    return span.reshape(-1, 5)


def token_spans(tables: Sequence[rows.TokenRows], runs: Runs, prefill: Ints, decode: Ints) -> Ints:
    """Return every row of tables of tokens over every run: one span per run if it is contiguous on both sides.

    Runs are cut at the ends of either side's tiles.
    """
    of_tables = [_token_spans(tokens, in_tiles(runs, tokens.hops), prefill, decode) for tokens in tables]
    return np.concatenate(of_tables) if of_tables else np.empty((0, 5), np.int64)


def _token_spans(tokens: rows.TokenRows, runs: Runs, prefill: Ints, decode: Ints) -> Ints:
    if not tokens.joined:
        runs = each_token(runs)
    span = page_spans(tokens.table, runs, prefill, decode).reshape(len(tokens.table), len(runs.count), 5)
    span[:, :, rows.P_OFFSET] += tokens.table[:, rows.P_TOKEN, None] * runs.prefill_token
    span[:, :, rows.D_OFFSET] += tokens.table[:, rows.D_TOKEN, None] * runs.decode_token
    for size, p_more, d_more in tokens.hops:
        span[:, :, rows.P_OFFSET] += runs.prefill_token // size * p_more
        span[:, :, rows.D_OFFSET] += runs.decode_token // size * d_more
    if tokens.joined:
        span[:, :, rows.BYTES] *= runs.count
    return span.reshape(-1, 5)


def in_tiles(runs: Runs, hops: Sequence[tuple[int, int, int]]) -> Runs:
    """Cut runs so that each lies in one tile of either side."""
    for size, prefill, decode in hops:
        runs = _cut(runs, runs.prefill_token, size) if prefill else runs
        runs = _cut(runs, runs.decode_token, size) if decode else runs
    return runs


def _cut(runs: Runs, token: Ints, size: int) -> Runs:
    """Cut runs at the multiples of `size` of `token`, the first token of each in its block."""
    tile, last = token // size, (token + runs.count - 1) // size
    pieces = last - tile + 1
    number = _ranges(pieces) + np.repeat(tile, pieces)
    start, end = np.repeat(token, pieces), np.repeat(token + runs.count, pieces)
    skip = np.maximum(number * size - start, 0)
    count = np.minimum((number + 1) * size, end) - start - skip
    repeated = [np.repeat(column, pieces) for column in runs[:4]]
    return Runs(repeated[0], repeated[1] + skip, repeated[2], repeated[3] + skip, count)


def _ranges(sizes: Ints) -> Ints:
    """Return 0, 1 … size - 1 for every size, one after the other."""
    return np.arange(sizes.sum(), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def each_token(runs: Runs) -> Runs:
    """Cut runs into single tokens."""
    within = _ranges(runs.count)
    repeated = [np.repeat(column, runs.count) for column in runs[:4]]
    return Runs(repeated[0], repeated[1] + within, repeated[2], repeated[3] + within, np.ones_like(within))


def pick(runs: Runs, chosen: npt.NDArray[np.bool_] | Ints) -> Runs:
    """Return the runs for which `chosen` is true, or whose places it has."""
    return Runs(*(column[chosen] for column in runs))
