"""The requests of a case: tokens and tables that fit both of its sides, in no order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from tests.end_to_end.build import sides
from tests.end_to_end.dimensions import Case

from kvplan.compiler.check.sample import sample_request
from kvplan.plan.block_tables import Ring, Slot, Table, block_ids
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks

OWN = {"cold": (0, 50), "prefix hit": (21, 22), "single": (3, 77), "whole hit": (9, 9)}


def requests(case: Case) -> dict[str, Request]:
    """A cold request with ids in a row, a prefix hit, one token, and a whole hit.

    Every other length has its own range.
    """
    random = Random(case.number)
    end = random.randint(60, 260)
    first, one = random.randrange(end), random.randrange(end)
    ranges = {"cold": (0, end), "prefix hit": (first, end), "single": (one, one + 1), "whole hit": (one, one)}
    both = sides(case)
    lengths = {name: {"enc": tokens} if case["second"] == "own length" else {} for name, tokens in OWN.items()}
    found = {name: sample_request(*both, ranges[name], random.randint(0, 99), lengths[name]) for name in ranges}
    return found | {"cold": rising(found["cold"])}


def rising(request: Request) -> Request:
    """The request with the ids of either side in a row, group by group, so that adjacent blocks become one transfer."""
    return replace(request, prefill=_in_a_row(request.prefill, 2), decode=_in_a_row(request.decode, 1))


def _in_a_row(tables: Mapping[str, Table], start: int) -> dict[str, Table]:
    ids = itertools.count(start)
    return {name: _numbered(t, ids) for name, t in tables.items()}


def _numbered(table: Table, ids: Iterator[int]) -> Table:
    if isinstance(table, Slot):
        return Slot(next(ids), table.at)
    row = block_ids(None if block < 0 else next(ids) for block in table.ids)
    return Ring(row, table.at) if isinstance(table, Ring) else Blocks(table.first, row)
