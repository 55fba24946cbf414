"""The copies of a damaged plan, in a normal form: plans that copy the same bytes have the same form."""

from __future__ import annotations

import numpy as np

from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import BadInput
from kvplan.plan.request import Request
from kvplan.plan.types import Plan


def joined(plan: Plan, moves: list[Copy]) -> list[Copy]:
    """The same bytes in one normal form: from the first of identical workers, with adjacent copies joined."""
    alike = [plan.prefill.workers.index(worker) for worker in plan.prefill.workers]
    every = [copy._replace(from_worker=alike[copy.from_worker]) for copy in moves]
    found: list[Copy] = []
    for copy in sorted(every, key=lambda c: (c.to_worker, c.to_plane, c.to_offset, c)):
        last = found[-1] if found else copy
        behind = last._replace(from_offset=last.from_offset + last.bytes, to_offset=last.to_offset + last.bytes)
        if found and copy == behind._replace(bytes=copy.bytes):
            found[-1] = last._replace(bytes=last.bytes + copy.bytes)
        else:
            found.append(copy)
    return found


def traced(plan: Plan, request: Request) -> list[Copy] | None:
    """The copies of a plan; None if it names something that does not exist, or cuts runs to nothing."""
    try:
        with np.errstate(divide="ignore"):
            return joined(plan, copies(plan, request))
    except (BadInput, IndexError, StopIteration, ValueError):
        return None


def by_tokens(plan: Plan) -> bool:
    """Whether whole pages move token by token, which copies the right bytes but no padding between them."""
    pages = {pair.name for pair in plan.group_pairs if pair.page_rows}
    return any(r.table.per_token and not r.table.per_page for reads in plan.reads for r in reads if r.groups in pages)
