"""Table agreement: the prefill blocks that a decode worker was told of, compared with those that a hold names itself.

A name may be held again, with other blocks: what was told of an earlier hold must neither be read nor be written.
"""

from __future__ import annotations

import numpy as np

from kvplan.plan.block_tables import Ring, Slot, Table, Tables
from kvplan.plan.types import Blocks, Ints
from kvplan.runtime.errors import LeaseError


def check_told(request: str, told: Tables, held: Tables) -> None:
    """Raises LeaseError where decode was told of another block than the hold has at the same place."""
    for group in sorted(told.keys() & held.keys()):
        if contradicts(told[group], held[group]):
            text = f"the hold has other blocks of group {group!r} than decode knows"
            raise LeaseError(f"request {request}: {text}: ask again with the blocks of this hold")


def covers(held: Table, told: Table) -> bool:
    """Whether every block that was told of is that of the hold at the same place."""
    if type(told) is not type(held) or not isinstance(told, Blocks):
        return _facts(told) == _facts(held)
    assert isinstance(held, Blocks)
    at = np.flatnonzero(told.ids >= 0)
    # In Python's numbers: a peer's `first` may be any.
    begin = int(told.first) - int(held.first)
    if at.size and (begin + int(at[0]) < 0 or begin + int(at[-1]) >= held.ids.size):
        return False
    return not at.size or bool((held.ids[at + begin] == told.ids[at]).all())


def contradicts(told: Table, held: Table) -> bool:
    """Whether both name a block at the same place, and not the same one; of a slot, after as many tokens.

    A ring keeps its blocks however far it stands.
    """
    if type(told) is not type(held):
        return True
    if isinstance(told, Blocks) and isinstance(held, Blocks):
        first = max(told.first, held.first)
        return _unlike(told.ids[first - told.first :], held.ids[first - held.first :])
    if isinstance(told, Ring) and isinstance(held, Ring):
        return told.ids.size != held.ids.size or _unlike(told.ids, held.ids)
    return getattr(told, "at", None) == getattr(held, "at", None) and _facts(told) != _facts(held)


def _unlike(told: Ints, held: Ints) -> bool:
    size = min(told.size, held.size)
    both = (told[:size] >= 0) & (held[:size] >= 0)
    return bool((told[:size] != held[:size])[both].any())


def _facts(table: Table) -> tuple[object, ...]:
    """What a slot or a ring is, to compare; blocks where one of these is meant are never the same."""
    if isinstance(table, Slot):
        return Slot, int(table.slot), int(table.at)
    return type(table), table.ids.tolist(), getattr(table, "at", table)
