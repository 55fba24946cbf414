"""A plan as the data of its page: what `explain` prints, every page as a map, and all reads, span by span."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, astuple
from typing import Any, TypeVar

from kvplan.compiler.cost.cost import TOKENS, PlanCost, TableEnds, ends_of, table_cost
from kvplan.compiler.drawing.tensors import Page, page_of
from kvplan.compiler.explain.describe import describe_plan
from kvplan.compiler.explain.picture.colours import TensorColour, plan_colours, split_axes
from kvplan.compiler.explain.picture.page_map import page_map
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.planes import entries, planes
from kvplan.plan.spans import group_named
from kvplan.plan.types import Group, Nest, Plan, Read, Side, Worker

Plain = dict[str, Any]
# A plane: its name, group, layer, index on other axes outside `block`, and the number of its page.
ListedPlane = tuple[str, str, int | None, tuple[tuple[str, int], ...], int]
# The colours of a cache's tensors.
Colours = Mapping[str, TensorColour]
Known = TypeVar("Known", bound=Hashable)
# Left out: `explain` gives these for one decode worker or as text; a page shows all workers and draws itself.
LEFT_OUT = ("worker", "landing", "landing_drawing", "reads", "prefill", "decode")


def picture(plan: Plan, facts: PlanCost) -> Plain:
    """Return all data of a plan's page. Bytes and descriptors are per `tokens` tokens (a state: per request).

    `tables` have the spans of reads, each once; a read names its table by index. A side's `plane_lists` are by worker
    kind, its `pages` by index.
    """
    said = {name: value for name, value in describe_plan(plan, facts).items() if name not in LEFT_OUT}
    tables: dict[tuple[Nest, ...], int] = {}
    ends, colours = ends_of(plan), plan_colours(plan)
    reads = [
        [_read(plan, number, read, tables, ends(number, read)) for read in every]
        for number, every in enumerate(plan.reads)
    ]
    return {
        **said,
        "tokens": TOKENS,
        "sides": [_side(side, colours) for side in (plan.prefill, plan.decode)],
        "reads": reads,
        "tells": [list(told) for told in plan.notify],
        "tables": [[_nest(nest) for nest in nests] for nests in tables],
    }


def _read(plan: Plan, reader: int, read: Read, tables: dict[tuple[Nest, ...], int], ends: TableEnds) -> Plain:
    alike = [other for other in plan.reads[reader] if (other.groups, other.cache) == (read.groups, read.cache)]
    nests = read.table.per_page if all(other.table.per_page for other in alike) else read.table.per_token
    descriptors, moved = table_cost(read.table, ends)
    return {
        "worker": read.worker,
        "pair": read.groups,
        "cache": read.cache,
        "layers": ranges(read.layers),
        "holds": {axis: list(where) for axis, where in read.holds},
        "first": list(read.first),
        "offset": list(read.offset),
        "table": _index(tables, nests),
        "descriptors": descriptors,
        "bytes": moved,
    }


def _nest(nest: Nest) -> Plain:
    return {
        "tensors": list(nest.tensors),
        "at": [list(nest.prefill), list(nest.decode)],
        "bytes": nest.bytes,
        "loops": [[loop.axis, loop.count, list(loop.prefill), list(loop.decode)] for loop in nest.loops],
        "token": list(nest.token_step) if nest.token_step else None,
        "hops": [list(hop) for hop in nest.hops],
    }


def _side(side: Side, colours: Mapping[str, Colours]) -> Plain:
    pages: dict[Page, int] = {}
    lists: dict[tuple[ListedPlane, ...], int] = {}
    workers = [_worker(side, worker, pages, lists) for worker in side.workers]
    return {
        "side": side.key,
        "digest": side.digest,
        "groups": [_group(side, group) for group in side.groups],
        "workers": workers,
        "plane_lists": [[_plane(plane) for plane in every] for every in lists],
        "pages": [_page(side, page, colours[page.cache]) for page in pages],
    }


def _group(side: Side, group: Group) -> Plain:
    overlays = [name for name in side.sharing(group) if name != group.name]
    return {key: value for key, value in asdict(group).items() if key not in ("arena", "table")} | {
        "overlays": overlays
    }


def _worker(
    side: Side,
    worker: Worker,
    pages: dict[Page, int],
    lists: dict[tuple[ListedPlane, ...], int],
) -> Plain:
    found = []
    for plane, entry in zip(planes(worker), entries(worker), strict=True):
        page = page_of(worker, entry, group_named(side, entry.group), plane)
        found.append((plane.name, plane.group, plane.layer, plane.at, _index(pages, page)))
    holds: dict[str, dict[str, list[int]]] = {}
    for cache, axis, held in worker.holds:
        holds.setdefault(cache, {})[axis] = list(held)
    return {"holds": holds, "shard": worker.shard, "planes": _index(lists, tuple(found))}


def _plane(plane: ListedPlane) -> Plain:
    name, group, layer, at, page = plane
    return {"name": name, "group": group, "layer": layer, "at": dict(at), "page": page}


def _page(side: Side, page: Page, colours: Colours) -> Plain:
    drawn = page_map(page, split_axes(side, page.cache), colours)
    return {
        "cache": page.cache,
        "part": page.part,
        "bytes": page.bytes,
        "stride": page.stride,
        "layers": list(page.layers),
        "row": drawn.row,
        "views": [
            {
                "tensor": view.tensor,
                "dtype": view.dtype,
                "size": size(view.dtype),
                "offset": view.offset,
                "axes": [list(axis) for axis in view.axes],
            }
            for view in page.views
        ],
        "cells": [
            {
                "tensor": cells.name,
                "offset": cells.offset,
                "bytes": cells.bytes,
                "loops": [[loop.count, loop.step] for loop in cells.loops],
            }
            for cells in drawn.cells
        ],
        "owners": [
            {**asdict(owner), "boxes": [[box.low, box.high, box.first, box.end] for box in boxes]}
            for owner, boxes in drawn.boxes
        ],
        "heads": [list(astuple(label)) for label in drawn.heads],
        "rows": [list(astuple(label)) for label in drawn.rows],
    }


def _index(known: dict[Known, int], value: Known) -> int:
    """Return the number of a value among the distinct ones."""
    return known.setdefault(value, len(known))
