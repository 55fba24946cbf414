"""Requests and their tables, written down by hand: ids as numbers, None where there is no block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kvplan.plan.block_tables import Ring, Slot, Table, Tables, block_ids
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks


def block_table(first: int, ids: Iterable[int | None]) -> Blocks:
    return Blocks(first, block_ids(ids))


def ring_table(ids: Iterable[int | None], at: int) -> Ring:
    return Ring(block_ids(ids), at)


def ask(
    tokens: tuple[int, int], prefill: Tables, decode: Tables, lengths: Mapping[str, tuple[int, int]] | None = None
) -> Request:
    return Request("request", tokens, prefill, decode, lengths or {})


def plain(request: Request) -> Request:
    """A request that can be compared: block ids as lists."""
    sides = ({name: _plain(table) for name, table in each.items()} for each in (request.prefill, request.decode))
    prefill, decode = sides
    return replace(request, prefill=prefill, decode=decode)


def _plain(table: Table) -> Any:
    if isinstance(table, Slot):
        return table
    return plain_ids(table.ids), table.first if isinstance(table, Blocks) else table.at


def plain_ids(ids: Iterable[int]) -> list[int | None]:
    """Ids as they are written down."""
    return [None if block < 0 else int(block) for block in ids]
