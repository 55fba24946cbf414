"""The last page of a request, which is not full: from how many rows on it costs less to copy it whole.

A page that has the same order on both sides is one descriptor or few. A part of it is one for each head and layer where
heads come before tokens: with 8 heads, and K and V in one row, one token takes 8 descriptors a layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvplan.plan import expand
from kvplan.plan.types import Group, Nest, Pair, Runs, Table

# As many bytes as a wire copies while a descriptor is posted: a microsecond of 16 GB/s. Faster wires, and CUDA's copies
# of 6 us each, make more of them worth it.
DESCRIPTOR_BYTES = 16 << 10


def whole_from(pair: Pair, groups: tuple[Group, Group], tables: Sequence[Table]) -> int:
    """The fewest rows of a page from which it costs less to copy it whole by these tables of the pair; 0 for never.

    Never if the two sides' pages differ, if other tokens lie behind the last one (rings, context parallelism), or if
    the tables stage their bytes.
    """
    staged = any(table.unpack or table.pack for table in tables)
    if not pair.page or staged or any(group.ring or group.shards > 1 for group in groups):
        return 0
    page = [nest for table in tables for nest in table.page]
    token = [nest for table in tables for nest in table.token]
    size = sum(expand.size((nest,)) * nest.bytes for nest in page)

    def pays(rows: int) -> bool:
        saved = sum(_spans(nest, rows) for nest in token) - expand.size(tuple(page))
        return saved > 0 and saved * DESCRIPTOR_BYTES * pair.page >= size * (pair.page - rows)

    return next((rows for rows in range(1, pair.page) if pays(rows)), 0)


def _spans(nest: Nest, rows: int) -> int:
    """How many spans the first rows of a page are."""
    if not expand.is_joined(nest):
        return expand.size((nest,)) * rows
    tile = min((hop[0] for hop in nest.hops), default=rows)
    return expand.size((nest,)) * -(-rows // tile)


def completed(runs: Runs, page: int, least: int) -> Runs:
    """The runs up to a request's end, with the last page, of `page` rows, whole if `least` rows of it are needed.

    It has to begin in them, too. With `least` 0 none is whole.
    """
    if not least or not len(runs.count) or runs.prefill_token[-1] or runs.decode_token[-1] or runs.count[-1] < least:
        return runs
    return runs._replace(count=np.append(runs.count[:-1], page))
