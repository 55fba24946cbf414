"""Tables of a request as they go over the wire, and back."""

from __future__ import annotations

import numpy as np

from kvplan.plan.block_tables import Ring, Slot, Table, Tables
from kvplan.plan.types import Blocks, Ints
from kvplan.runtime.control.messages import WireTable
from kvplan.runtime.errors import CardError

ORDER = np.dtype("<i8")
MOST_GROUPS = 4096
Wired = dict[str, WireTable]


def pack(tables: Tables) -> Wired:
    """Checked tables by group as messages carry them."""
    return {name: _pack(table) for name, table in tables.items()}


def unpack(tables: Wired) -> dict[str, Table]:
    """Tables by group that came from a peer; their numbers are still to be checked. Raises CardError."""
    if len(tables) > MOST_GROUPS:
        raise CardError(f"a message names {len(tables)} groups, at most {MOST_GROUPS}")
    return {name: _unpack(name, table) for name, table in tables.items()}


def _pack(table: Table) -> WireTable:
    if isinstance(table, Blocks):
        return WireTable("blocks", table.first, table.ids.astype(ORDER).tobytes())
    if isinstance(table, Ring):
        return WireTable("ring", table.at, table.ids.astype(ORDER).tobytes())
    return WireTable("slot", table.at, np.array([table.slot], ORDER).tobytes())


def _unpack(name: str, table: WireTable) -> Table:
    if len(table.ids) % ORDER.itemsize:
        raise CardError(f"the table of group {name!r} has {len(table.ids)} bytes of ids, which are 8 bytes each")
    ids: Ints = np.frombuffer(table.ids, ORDER).astype(np.int64)
    if table.kind == "blocks":
        return Blocks(table.first, ids)
    if table.kind == "ring":
        return Ring(ids, table.first)
    if table.kind == "slot" and len(ids) == 1:
        return Slot(int(ids[0]), table.first)
    raise CardError(f"the table of group {name!r} is a {table.kind!r} of {len(ids)} ids: no such table")
