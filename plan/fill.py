"""Fill: from how many rows on a page that is not full costs less to copy whole than row by row.

A page that both sides lay out alike is one descriptor or few. A part of it is a descriptor for each head and layer
where heads come before tokens: one token of Llama 3.1 8B takes 512, its page of 16 tokens 64.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.plan import expand
from kvplan.plan.types import Group, Nest, Pair, Table

# As many bytes as a wire copies while a descriptor is posted: a microsecond of 16 GB/s. Faster wires, and CUDA's copies
# of 6 us each, make more of them worth it.
DESCRIPTOR_BYTES = 16 << 10


def least_rows(pair: Pair, groups: tuple[Group, Group], tables: Sequence[Table]) -> int:
    """The fewest rows of a page from which it costs less to copy it whole by these tables of the pair; 0 for never.

    Never where pages differ, where rows behind the last one hold others (rings, tokens that are shared out), or where
    bytes go by way of a stage.
    """
    staged = any(table.unpack or table.pack for table in tables)
    if not pair.page or staged or any(group.ring or group.shards > 1 for group in groups):
        return 0
    page = [nest for table in tables for nest in table.page]
    token = [nest for table in tables for nest in table.token]
    size = sum(expand.size((nest,)) * nest.bytes for nest in page)

    def pays(rows: int) -> bool:
        saved = sum(_spans(nest, rows) for nest in token) - sum(expand.size((nest,)) for nest in page)
        return saved > 0 and saved * DESCRIPTOR_BYTES * pair.page >= size * (pair.page - rows)

    return next((rows for rows in range(1, pair.page) if pays(rows)), 0)


def _spans(nest: Nest, rows: int) -> int:
    """How many spans so many rows of tokens are."""
    together = expand.is_joined(nest) and not nest.hops
    return expand.size((nest,)) * (1 if together else rows)
