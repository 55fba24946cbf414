"""The last page of a request, which is not full: the number of rows from which copying it whole costs less.

A page with the same order on both sides is one descriptor or few. A part of it is one for each head and layer if
heads come before tokens: with 8 heads, and K and V in one row, one token takes 8 descriptors a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kvplan.plan import expand
from kvplan.plan.spans import group_named
from kvplan.plan.types import Group, GroupPair, Nest, Plan, Read, Runs, Table

# The bytes that a wire copies in the time of posting a descriptor: a microsecond of 16 GB/s. On faster wires, and
# with CUDA's copies of 6 us each, more bytes would be worth it.
DESCRIPTOR_BYTES = 16 << 10


def whole_from_by(plan: Plan, found: Mapping[tuple[str, int], Sequence[Read]]) -> dict[tuple[str, int], int]:
    """Return the rows from which a last page is copied whole, by (pair, prefill shard) of `reads_by`; 0 for never."""
    pairs = {pair.name: pair for pair in plan.group_pairs}
    # A damaged plan may name others here: its header is written before the proof refuses it.
    return {key: _whole_from(plan, pairs[key[0]], reads) for key, reads in found.items() if key[0] in pairs}


def reads_by(plan: Plan, worker: int) -> dict[tuple[str, int], list[Read]]:
    """Return the reads of a decode worker by (pair, prefill shard)."""
    found = dict[tuple[str, int], list[Read]]()
    for read in plan.reads[worker]:
        found.setdefault((read.groups, plan.prefill.workers[read.worker].shard), []).append(read)
    return dict(sorted(found.items()))


def _whole_from(plan: Plan, pair: GroupPair, reads: Sequence[Read]) -> int:
    """Return `whole_from` of a pair, but 0 if prefill's blocks may hold caches of other types that decode lacks."""
    prefill, paired = group_named(plan.prefill, pair.prefill), {pair.prefill for pair in plan.group_pairs}
    if any(other.name not in paired and other.overlays(prefill) for other in plan.prefill.groups):
        return 0
    return whole_from(pair, (prefill, group_named(plan.decode, pair.decode)), [read.table for read in reads])


def whole_from(pair: GroupPair, groups: tuple[Group, Group], tables: Sequence[Table]) -> int:
    """Return the fewest rows of a page from which copying it whole by the pair's tables costs less; 0 for never.

    Never if the two sides' pages differ or have one row, if other tokens lie behind the last one (rings, context
    parallelism), or if the tables stage their bytes.
    """
    staged = any(table.unpack or table.pack for table in tables)
    if pair.page_rows < 2 or staged or any(group.ring or group.shards > 1 for group in groups):
        return 0
    page = [nest for table in tables for nest in table.per_page]
    token = [nest for table in tables for nest in table.per_token]
    size = sum(expand.size((nest,)) * nest.bytes for nest in page)

    def pays(rows: int) -> bool:
        saved = sum(_spans(nest, rows) for nest in token) - expand.size(tuple(page))
        return saved > 0 and saved * DESCRIPTOR_BYTES * pair.page_rows >= size * (pair.page_rows - rows)

    # It pays more with more needed rows: if not with all but one, never.
    return next((rows for rows in range(1, pair.page_rows) if pays(rows)), 0) if pays(pair.page_rows - 1) else 0


def _spans(nest: Nest, rows: int) -> int:
    """Return the number of spans of a page's first rows."""
    if not expand.is_joined(nest):
        return expand.size((nest,)) * rows
    # A damaged plan may have 0 here: its header is written before the proof refuses it.
    tile = max(1, min((hop[0] for hop in nest.hops), default=rows))
    return expand.size((nest,)) * -(-rows // tile)


def completed(runs: Runs, page: int, least: int) -> Runs:
    """Return the runs up to a request's end, the last page, of `page` rows, whole if `least` rows of it are needed.

    The page must also begin within the runs. With `least` 0 no page is completed.
    """
    if not least or not len(runs.count) or runs.prefill_token[-1] or runs.decode_token[-1] or runs.count[-1] < least:
        return runs
    return runs._replace(count=np.append(runs.count[:-1], page))
