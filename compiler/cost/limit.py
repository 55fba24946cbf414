"""Refuse plans with too many spans to count, before expanding one of them."""

from __future__ import annotations

from kvplan.compiler.cost.cost import TOKENS, ends_of, spans_of
from kvplan.compiler.errors import Refused
from kvplan.plan import expand as rows
from kvplan.plan.types import Nest, Plan, Read

# Counted over a plan's different reads, for `TOKENS` tokens and at least one page; repeated planes count once.
# Pairs of shipped models have up to 300,000 on existing engines, half of the limit in the worst possible order.
# Counting this many takes 1.3 GB and 5 s.
MOST_SPANS = 1 << 24


def check_spans(plan: Plan) -> None:
    """Refuse (C142) a plan of more than `MOST_SPANS` spans."""
    tables = {read.table for reads in plan.reads for read in reads}
    if sum(rows.size((*table.per_page, *table.per_token)) for table in tables) * TOKENS <= MOST_SPANS:
        return
    ends = ends_of(plan)
    every = {(read.table, ends(at, read)): (at, read) for at, reads in enumerate(plan.reads) for read in reads}
    counts = {key: spans_of(*key) for key in every}
    if sum(counts.values()) > MOST_SPANS:
        longest = max(counts, key=lambda key: counts[key])
        raise _refused(*every[longest], counts[longest], sum(counts.values()))


def _refused(worker: int, read: Read, count: int, total: int) -> Refused:
    said = (
        f"the plan has {total:,} spans for a page or {TOKENS:,} tokens, {count:,} of them in the table of "
        f"{read.groups!r} from prefill worker {read.worker} to decode worker {worker}: {_longest(read)}"
    )
    help = f"at most {MOST_SPANS:,}: choose orders that keep more together on both sides, or smaller blocks"
    return Refused("C142", said, help)


def _longest(read: Read) -> str:
    """Describe the nest with most spans: `2 B of v together, apart by 8 head x 1,048,576 dim`."""
    nest = max((*read.table.per_token, *read.table.per_page), key=lambda nest: rows.size((nest,)))
    return f"{nest.bytes:,} B of {'+'.join(nest.tensors)} together, apart by {_loops(nest)}"


def _loops(nest: Nest) -> str:
    return " x ".join([f"{loop.count:,} {loop.axis}" for loop in nest.loops] + ["token"] * bool(nest.token_step))
