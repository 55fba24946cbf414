"""The global layers that the rows of a read move, and the rows that move some layers only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan import planes as names
from kvplan.plan.errors import BadRequestError
from kvplan.plan.types import Ints, Plan, Planes, Read, Worker

Layers = frozenset[int]
# The most sets of layers to prepare: chunks name them.
MOST_SETS = 1024
# The number of workers whose layers are cached.
MOST_WORKERS = 1024
Tables = tuple[Ints, tuple[rows.TokenRows, ...]]
# The number of batches in which layers are offered: each costs a post and an event.
BATCHES = 8


def batches(layers: Iterable[int]) -> list[tuple[int, ...]]:
    """Return layers in batches of neighbours, the best sizes to offer while they are computed.

    Each batch has an eighth, and the last eighth is halved down to one layer: only that one is left to move once all
    layers are computed.
    """
    rest, found = sorted(layers), list[tuple[int, ...]]()
    size = -(-len(rest) // BATCHES)
    while rest:
        taken = size if len(rest) > size else -(-len(rest) // 2)
        found.append(tuple(rest[:taken]))
        rest = rest[taken:]
    return found


def moved(plan: Plan, prefill_worker: int | None) -> Layers:
    """Return the layers that are read from a prefill worker, or from any."""
    every = (read for reads in plan.reads for read in reads if prefill_worker in (None, read.worker))
    return frozenset(layer for read in every for layer in read.layers)


def stored(plan: Plan, prefill_worker: int | None) -> Layers:
    """Return the layers that a prefill worker, or any, stores."""
    workers = plan.prefill.workers if prefill_worker is None else (plan.prefill.workers[prefill_worker],)
    said = (held for worker in workers for held in _plane_layers(worker) if held is not None)
    return moved(plan, prefill_worker).union(*said)


def text(layers: Iterable[int]) -> str:
    """Return layers as a text: `layer 3`, `layers 3-5, 9`."""
    found: list[list[int]] = []
    for layer in sorted(layers):
        if found and layer == found[-1][1] + 1:
            found[-1][1] = layer
        else:
            found.append([layer, layer])
    words = [str(low) if low == high else f"{low}-{high}" for low, high in found]
    one = len(found) == 1 and found[0][0] == found[0][1]
    return f"{'layer' if one else 'layers'} {', '.join(words) or 'none'}"


def chosen(plan: Plan, decode_worker: int, read: Read, tables: Tables, layers: Layers) -> Tables:
    """Return the rows of a read's two tables that move `layers`; tables of tokens without any are left out.

    Raises BadRequestError if a row moves some of them together with other layers.
    """
    theirs, ours = plan.prefill.workers[read.worker], plan.decode.workers[decode_worker]
    held = _plane_layers(theirs), _plane_layers(ours)
    page = _rows(read, tables[0], held, layers)
    token = tuple(replace(one, table=_rows(read, one.table, held, layers)) for one in tables[1])
    return page, tuple(one for one in token if len(one.table))


@lru_cache(MOST_WORKERS)
def _plane_layers(worker: Worker) -> tuple[Layers | None, ...]:
    """Return the layers of every plane by number; None if the plane does not say. Cached for all requests."""
    both = zip(names.planes(worker), names.entries(worker), strict=True)
    return tuple(_of_plane(plane, entry) for plane, entry in both)


def _of_plane(plane: names.Plane, entry: Planes) -> Layers | None:
    if plane.layer is not None:
        return frozenset({plane.layer})
    return frozenset(entry.layers) or None


def _rows(read: Read, table: Ints, held: tuple[tuple[Layers | None, ...], ...], layers: Layers) -> Ints:
    pairs, row = np.unique(table[:, [rows.P_PLANE, rows.D_PLANE]], axis=0, return_inverse=True)
    keep = np.array([_moves(read, (held[0][p], held[1][d]), layers) for p, d in pairs.tolist()], np.bool_)
    found: Ints = table[keep[row.reshape(-1)]] if len(table) else table
    return found


def _moves(read: Read, held: tuple[Layers | None, Layers | None], layers: Layers) -> bool:
    mine = frozenset(read.layers)
    for one in held:
        mine = mine if one is None else mine & one
    if not mine & layers:
        return False
    if not mine <= layers:
        raise BadRequestError(f"{text(mine)} of {read.cache!r} share a page: feed them together")
    return True
