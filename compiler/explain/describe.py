"""A plan or a side in plain values, which `explain` prints as text or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvplan.compiler.cost.cost import PlanCost
from kvplan.compiler.drawing.tensors import draw, page_of
from kvplan.compiler.explain.contract import expected
from kvplan.compiler.explain.landing.spans import DECODE, PREFILL, LandingSpan, laid, numbered, pieces, worker_of
from kvplan.compiler.explain.landing.text import WIDTH, landing
from kvplan.compiler.words import reading, readings
from kvplan.plan.planes import entries, planes
from kvplan.plan.spans import group_named
from kvplan.plan.types import GroupPair, Plan, Planes, Read, Side, Worker

Plain = dict[str, Any]
# Facts of a group that are copied as they are.
PAGED = ("tokens", "kernel", "ratio", "shards", "chunk", "length", "ring")


def describe_plan(plan: Plan, facts: PlanCost, reader: int = 0, width: int = WIDTH) -> Plain:
    """Describe a pair for a reader. Descriptors and bytes are per 1024 tokens, or per request for a state.

    `landing` is of decode worker `reader`, drawn in about `width` columns. Raises BadInput (S024) without that worker.
    """
    return {
        "title": plan.title,
        "model": plan.model,
        "digests": {"model": plan.model_digest, "plan": plan.digest},
        "options": dict(plan.options),
        "prefill": describe_side(plan.prefill),
        "decode": describe_side(plan.decode),
        "group_pairs": [_pair(plan, pair) for pair in plan.group_pairs],
        "readings": readings(plan),
        "moves": [_moves(move) for move in facts.moves],
        "reads": [_reads(plan, number) for number in range(len(plan.reads))],
        "worker": reader,
        "landing": [_piece(plan, piece) for piece in pieces(plan, reader)],
        "landing_drawing": landing(plan, reader, width),
        "notifications": {str(number): count for number, count in enumerate(expected(plan))},
        "skipped": list(plan.skipped),
        "layers": facts.layers,
        "strategy": facts.strategy,
        "notes": list(facts.notes),
        "proof": facts.proved,
    }


def describe_side(side: Side) -> Plain:
    """Describe groups with plane counts of each worker, holdings, and drawn pages with the names of their planes."""
    return {
        "side": side.key,
        "digest": side.digest,
        "groups": [_group(side, index) for index in range(len(side.groups))],
        "workers": [_worker(worker) for worker in side.workers],
        "pages": _pages(side),
    }


def _pair(plan: Plan, pair: GroupPair) -> Plain:
    groups = {"pair": pair.name, "prefill": pair.prefill, "decode": pair.decode}
    return {
        **groups,
        "page_rows": pair.page_rows,
        "rows": pair.rows,
        "needs": asdict(pair.needs),
        "reading": reading(plan, pair),
    }


def _group(side: Side, index: int) -> Plain:
    group = side.groups[index]
    counts = [sum(plane.group == group.name for plane in planes(worker)) for worker in side.workers]
    entries = [entry for worker in side.workers for entry in worker.planes if entry.group == group.name]
    overlaid = [name for name in side.sharing(group) if name != group.name]
    return {
        "group": group.name,
        "store": group.store,
        "layers": sorted({n for entry in entries for n in _layers(entry)}),
        "planes": counts,
        **{name: getattr(group, name) for name in PAGED},
        "overlays": overlaid,
    }


def _layers(entry: Planes) -> tuple[int, ...]:
    return next((indices for axis, indices, _ in entry.loops if axis == "layer"), ())


def _worker(worker: Worker) -> Plain:
    holds: dict[str, dict[str, list[int]]] = {}
    for cache, axis, held in worker.holds:
        holds.setdefault(cache, {})[axis] = list(held)
    for entry in worker.planes:
        holds.setdefault(entry.cache, {})
    layers = sorted({n for entry in worker.planes for n in _layers(entry)})
    return {"layers": layers, "holds": holds, "shard": worker.shard, "planes": len(planes(worker))}


def _pages(side: Side) -> list[Plain]:
    """Describe each different page once, by its first worker."""
    alike: dict[tuple[object, ...], list[tuple[int, Planes]]] = {}
    for number, worker in enumerate(side.workers):
        for entry in worker.planes:
            key = (entry.cache, entry.part, entry.page_bytes, entry.stride, entry.views)
            alike.setdefault(key, []).append((number, entry))
    return [_page(side, found) for found in alike.values()]


def _page(side: Side, found: list[tuple[int, Planes]]) -> Plain:
    number, entry = found[0]
    return {
        "cache": entry.cache,
        "part": entry.part,
        "groups": list(dict.fromkeys(other.group for _, other in found)),
        "workers": sorted({worker for worker, _ in found}),
        "drawn_worker": number,
        "planes": _names(side.workers[number], entry),
        "bytes": entry.page_bytes,
        "stride": entry.stride,
        **({"memory": entry.memory} if entry.memory else {}),
        "views": [
            {"tensor": v.tensor, "dtype": v.dtype, "offset": v.offset, "axes": [list(axis) for axis in v.axes]}
            for v in entry.views
        ],
        "drawing": draw(page_of(side.workers[number], entry, group_named(side, entry.group))),
    }


def _names(worker: Worker, page: Planes) -> list[str]:
    """Return the names of a worker's planes with such a page."""
    alike = [(entry.cache, entry.part, entry.page_bytes, entry.stride, entry.views) for entry in entries(worker)]
    like = (page.cache, page.part, page.page_bytes, page.stride, page.views)
    return [plane.name for plane, other in zip(planes(worker), alike, strict=True) if other == like]


def _moves(move: Any) -> Plain:
    names = ("workers", "groups", "store", "paged", "reads", "spans", "unit", "descriptors", "bytes")
    staged = [asdict(way) for way in move.staged]
    return {name: getattr(move, name) for name in names} | ({"staged": staged} if staged else {})


def _reads(plan: Plan, number: int) -> Plain:
    return {"worker": number, "from": [_read(read) for read in plan.reads[number]], "tells": list(plan.notify[number])}


def _piece(plan: Plan, piece: LandingSpan) -> Plain:
    nest, read = piece.nest, piece.read
    return {
        "letter": piece.letter,
        "prefill_worker": read.worker,
        "decode_worker": piece.reader,
        "groups": read.groups,
        "cache": read.cache,
        "layers": list(read.layers),
        "holds": {axis: list(where) for axis, where in piece.holds},
        "tensors": list(nest.tensors),
        "bytes": nest.bytes,
        "prefill": _place(plan, piece, PREFILL),
        "decode": _place(plan, piece, DECODE),
        "repeats": [
            {"axis": loop.axis, "count": loop.count, "prefill": list(loop.prefill), "decode": list(loop.decode)}
            for loop in nest.loops
        ],
        "spans": piece.spans,
    }


def _place(plan: Plan, piece: LandingSpan, side: int) -> Plain:
    """Describe the place of the first span; `turns` are its repetitions in that page, (axis, count, bytes apart)."""
    number, where = next(laid(piece, side))
    plane, _ = numbered((plan.prefill, plan.decode)[side].workers[worker_of(piece, side)])[number]
    return {
        "plane": plane.name,
        "number": number,
        "page": plane.page,
        "offset": where.offset,
        "bytes": where.bytes,
        "turns": [[loop.axis, loop.count, loop.step] for loop in where.loops],
    }


def _read(read: Read) -> Plain:
    held = {axis: list(where) for axis, where in read.holds}
    return {
        "worker": read.worker,
        "groups": read.groups,
        "cache": read.cache,
        "layers": list(read.layers),
        "holds": held,
    }
