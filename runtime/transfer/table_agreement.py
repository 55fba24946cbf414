"""Table agreement: compares the prefill blocks that a decode worker names with those that a hold names.

A request may be held again with other blocks. Blocks of an earlier hold must not be read or written.
"""

from __future__ import annotations

import numpy as np

from kvplan.plan.block_tables import Ring, Slot, Table, Tables
from kvplan.plan.types import Blocks, Ints
from kvplan.runtime.errors import LeaseError


def check_told(request: str, told: Tables, held: Tables) -> None:
    """Check that decode names no other block than the hold at the same place. Raises LeaseError."""
    for group in sorted(told.keys() & held.keys()):
        if contradicts(told[group], held[group]):
            text = f"the hold has other blocks of group {group!r} than decode knows"
            raise LeaseError(f"request {request}: {text}: ask again with the blocks of this hold")


def covers(held: Table, told: Table) -> bool:
    """Return whether every block that decode names is the hold's block at the same place."""
    if type(told) is not type(held) or not isinstance(told, Blocks):
        return _facts(told) == _facts(held)
    assert isinstance(held, Blocks)
    at = np.flatnonzero(told.ids >= 0)
    # Use Python's ints, because a peer's `first` may be any number.
    begin = int(told.first) - int(held.first)
    if at.size and (begin + int(at[0]) < 0 or begin + int(at[-1]) >= held.ids.size):
        return False
    return not at.size or bool((held.ids[at + begin] == told.ids[at]).all())


def contradicts(told: Table, held: Table) -> bool:
    """Return whether both name different blocks at the same place, or different slots after the same tokens.

    Rings are compared regardless of their positions, because a ring keeps its blocks.
    """
    if type(told) is not type(held):
        return True
    if isinstance(told, Blocks) and isinstance(held, Blocks):
        first = max(told.first, held.first)
        return _differ(told.ids[first - told.first :], held.ids[first - held.first :])
    if isinstance(told, Ring) and isinstance(held, Ring):
        return told.ids.size != held.ids.size or _differ(told.ids, held.ids)
    return getattr(told, "at", None) == getattr(held, "at", None) and _facts(told) != _facts(held)


def _differ(told: Ints, held: Ints) -> bool:
    size = min(told.size, held.size)
    both = (told[:size] >= 0) & (held[:size] >= 0)
    return bool((told[:size] != held[:size])[both].any())


def _facts(table: Table) -> tuple[object, ...]:
    """Return the facts of a table to compare. They equal another table's only if it is of the same kind."""
    if isinstance(table, Slot):
        return Slot, int(table.slot), int(table.at)
    return type(table), table.ids.tolist(), getattr(table, "at", table)
