"""What one request copies, span by span, as a plan says it and before neighbours are merged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvplan.runtime import names, rows
from kvplan.runtime.plan import Ints, Pair, Plan, Read, Runs, Table


def copies(plan: Plan, decode_worker: int, read: Read, runs: Runs) -> Ints:
    """Rows (prefill plane, prefill offset, decode plane, decode offset, bytes) of `read` over `runs`.

    Offsets count from the plane's base. A whole page uses the page table, every other run the token table.
    """
    pair = pair_named(plan, read.pair)
    strides = names.strides(plan.prefill.workers[read.worker]), names.strides(plan.decode.workers[decode_worker])
    whole = whole_pages(pair.page, read.table, runs)
    table = read.table
    page, token = rows.of_read(read, table.page)[:, : rows.P_TOKEN], rows.of_read(read, table.token)
    return np.concatenate(
        [page_spans(page, pick(runs, whole), *strides), token_spans(token, pick(runs, ~whole), *strides)]
    )


def pair_named(plan: Plan, name: str) -> Pair:
    """The pair of groups of that name."""
    return next(pair for pair in plan.pairs if pair.name == name)


def whole_pages(page: int, table: Table, runs: Runs) -> npt.NDArray[np.bool_]:
    """Which runs go by the page table: pages full on both sides, and states, which have no tokens to cut."""
    if not table.token:
        return np.ones(len(runs.count), np.bool_)
    if not page or not table.page:
        return np.zeros(len(runs.count), np.bool_)
    # A run lies in one block on either side: one of as many tokens as a page has begins at the page's first.
    whole: npt.NDArray[np.bool_] = runs.count == page
    return whole


def page_spans(table: Ints, runs: Runs, prefill: Ints, decode: Ints) -> Ints:
    """Every row of a page table at every block of `runs`; `prefill` and `decode` are block strides by plane."""
    span = np.empty((len(table), len(runs.count), 5), np.int64)
    span[:] = table[:, None, : rows.P_TOKEN]
    span[:, :, rows.P_OFFSET] += prefill[table[:, rows.P_PLANE], None] * runs.prefill_block
    span[:, :, rows.D_OFFSET] += decode[table[:, rows.D_PLANE], None] * runs.decode_block
    return span.reshape(-1, 5)


def token_spans(table: Ints, runs: Runs, prefill: Ints, decode: Ints) -> Ints:
    """Every row of a token table over every run: one span per run where tokens are contiguous on both sides."""
    steps = table[:, rows.P_TOKEN :]
    joined = (steps == table[:, rows.BYTES, None]).all(axis=1)
    long = _at_tokens(table[joined], runs, prefill, decode)
    long[:, :, rows.BYTES] *= runs.count
    short = _at_tokens(table[~joined], each_token(runs), prefill, decode) if not joined.all() else long[:0]
    return np.concatenate([long.reshape(-1, 5), short.reshape(-1, 5)])


def each_token(runs: Runs) -> Runs:
    """Runs cut into single tokens."""
    within = np.arange(runs.count.sum(), dtype=np.int64)
    within -= np.repeat(np.cumsum(runs.count) - runs.count, runs.count)
    repeated = [np.repeat(column, runs.count) for column in runs[:4]]
    return Runs(repeated[0], repeated[1] + within, repeated[2], repeated[3] + within, np.ones_like(within))


def _at_tokens(table: Ints, runs: Runs, prefill: Ints, decode: Ints) -> Ints:
    span = page_spans(table, runs, prefill, decode).reshape(len(table), len(runs.count), 5)
    span[:, :, rows.P_OFFSET] += table[:, rows.P_TOKEN, None] * runs.prefill_token
    span[:, :, rows.D_OFFSET] += table[:, rows.D_TOKEN, None] * runs.decode_token
    return span


def pick(runs: Runs, chosen: npt.NDArray[np.bool_]) -> Runs:
    """The runs where `chosen` is true."""
    return Runs(*(column[chosen] for column in runs))
