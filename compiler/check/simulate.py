"""A plan's copies executed on buffers of labels, and compared with what naive indexing of the caches gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.balance import uneven
from kvplan.compiler.check.copy_list import Key, by_plane
from kvplan.compiler.check.labels import (
    FOREIGN,
    UNWRITTEN,
    Atlas,
    Labels,
    NeededTokens,
    TableBlocks,
    atlas,
    paged,
    paint,
    ragged,
    table_of,
    words,
)
from kvplan.compiler.check.oracle import OraclePlane, planes
from kvplan.compiler.check.request import Copy, Ids, Request, Ring, Table
from kvplan.compiler.check.simulate_report import SimulationReport, Tally
from kvplan.plan.types import Plan

BATCH = 1 << 22


@dataclass(frozen=True, slots=True)
class SourcePages:
    """A prefill plane and the blocks of it that the request names."""

    plane: OraclePlane
    pages: TableBlocks


def sources(side: BoundSide, tables: Mapping[str, Table]) -> dict[Key, SourcePages]:
    """Every plane of every worker of a side, with the blocks of one request."""
    found: dict[Key, SourcePages] = {}
    for worker in side.workers:
        pages = {g.name: paged(side, worker, g, table_of(tables, g)) for g in side.groups}
        mine = planes(side, worker).values()
        found |= {(worker.number, plane.name): SourcePages(plane, pages[plane.group.name]) for plane in mine}
    return found


@dataclass(frozen=True, slots=True)
class PageBatch:
    """Pages `first`… of one decode plane: what was written where, how often, and what should have been."""

    got: Labels
    writes: Labels
    need: Labels
    full: Labels


def simulate(
    plan: Plan, prefill: BoundSide, decode: BoundSide, copies: Iterable[Copy], request: Request
) -> SimulationReport:
    """Execute `copies` for `request` and compare every byte that the request needs on every decode worker.

    A needed byte has to be written exactly once, from its own coordinate; nothing else may be written, but
    padding from padding, and no copy may begin or end there. Readers have to be even over holders of the same.
    """
    regions, source = labelled(prefill, decode, request), sources(prefill, request.prefill)
    moves, tally = dict(by_plane(copies)), Tally()
    tally.crowded(uneven(plan, prefill, decode))
    for key, target in sources(decode, request.decode).items():
        mine = moves.pop(key, {})
        if target.plane.cache in plan.skipped:
            tally.stray(f"decode worker {key[0]} · plane {key[1]}", sum(int(m[:, 2].sum()) for m in mine.values()))
            continue
        tally.seen(key[0])
        want = wanted(decode, target.plane, request)
        _plane(tally, f"decode worker {key[0]}", target, mine, source, regions, want)
    for (worker, plane), lost in moves.items():
        tally.stray(f"decode worker {worker} · no plane {plane}", sum(int(m[:, 2].sum()) for m in lost.values()))
    return tally.report()


def wanted(decode: BoundSide, plane: OraclePlane, request: Request) -> NeededTokens:
    cache = next(cache for cache in decode.caches if cache.name == plane.cache)
    return NeededTokens(cache.needs, *request.range_of(cache.length))


def all_wanted(want: NeededTokens, token: Labels) -> bool:
    """Whether every byte of pages with these tokens is needed."""
    return want.first < want.end and bool(want.test(token[token >= 0]).all())


def labelled(prefill: BoundSide, decode: BoundSide, request: Request) -> Atlas:
    """Labels for every byte that a table of the request has room for."""
    rooms = _room(prefill, request.prefill), _room(decode, request.decode)
    return atlas(decode, max(*rooms, *(end for _, end in request.ranges())))


def _room(side: BoundSide, tables: Mapping[str, Table]) -> int:
    """One past the last token that the side's tables have room for."""
    found = [(g, table_of(tables, g)) for g in side.groups]
    ends = [(t.first + len(t.ids)) * g.tokens for g, t in found if isinstance(t, Ids)]
    rings = [t.at for _, t in found if isinstance(t, Ring)]
    return max(
        (*rings, *(end * side.token_shards + side.token_shards * side.interleave_tokens for end in ends)), default=0
    )


def _plane(
    tally: Tally,
    who: str,
    target: SourcePages,
    moves: Mapping[Key, Labels],
    source: Mapping[Key, SourcePages],
    regions: Atlas,
    want: NeededTokens,
) -> None:
    """Check one decode plane, a few pages at a time."""
    kept = {at: _inside(tally, f"{who} · plane {target.plane.name}", target, rows) for at, rows in moves.items()}
    tally.counts["planes"] += 1
    step = max(1, BATCH // target.plane.page)
    for first in range(0, len(target.pages.ids), step):
        token = target.pages.token[first : first + step]
        need = paint(target.plane, regions, token, want)
        full = need if all_wanted(want, token) else paint(target.plane, regions, token)
        batch = PageBatch(np.full_like(need, UNWRITTEN), np.zeros_like(need), need, full)
        for at, (row, rows) in kept.items():
            now = (row >= first) & (row < first + step)
            if now.any():
                start = (row[now] - first) * target.plane.page + rows[now, 1] % target.plane.stride
                _write(batch, tally, start, rows[now, 2], _read(source.get(at), regions, rows[now]))
        tally.compare(batch.got, batch.writes, need, full, lambda label: words(regions, label), who)


def _inside(tally: Tally, where: str, target: SourcePages, rows: Labels) -> tuple[Labels, Labels]:
    """Copies that lie in one page of the table, with the page's number; the others are counted as stray."""
    row, ok = _rows(target, rows[:, 1], rows[:, 2])
    tally.counts["copies"] += len(rows)
    if not ok.all():
        tally.stray(f"{where} · offset {rows[~ok, 1][0]}, in no page of the table", int(rows[~ok, 2].sum()))
    return row[ok], rows[ok]


def _rows(at: SourcePages, offset: Labels, size: Labels) -> tuple[Labels, npt.NDArray[np.bool_]]:
    """Which page of the table `size` bytes from `offset` lie in, and whether they do."""
    if not len(at.pages.ids):
        return np.zeros_like(offset), np.zeros(len(offset), np.bool_)
    block, inside = np.divmod(offset, at.plane.stride)
    row = np.minimum(np.searchsorted(at.pages.ids, block), len(at.pages.ids) - 1)
    return row, (at.pages.ids[row] == block) & (inside + size <= at.plane.page) & (size > 0)


def _write(batch: PageBatch, tally: Tally, start: Labels, size: Labels, labels: Labels) -> None:
    """Write `labels`, the bytes of all copies in a row, at `start` of each copy; padding may not begin or end one."""
    spot = ragged(start, size)
    batch.got.reshape(-1)[spot] = labels
    batch.writes[:] += np.bincount(spot, minlength=batch.writes.size).reshape(batch.writes.shape)
    need = batch.need.reshape(-1)
    tally.counts["loose"] += int(((need[start] < 0) | (need[start + size - 1] < 0)).sum())


def _read(at: SourcePages | None, regions: Atlas, rows: Labels) -> Labels:
    """The labels of the bytes that copies read, one copy after the other."""
    if at is None:
        return np.full(int(rows[:, 2].sum()), FOREIGN)
    row, ok = _rows(at, rows[:, 0], rows[:, 2])
    if not ok.any():
        return np.full(int(rows[:, 2].sum()), FOREIGN)
    used, short = np.unique(row[ok], return_inverse=True)
    page = paint(at.plane, regions, at.pages.token[used]).reshape(-1)
    start = np.zeros(len(rows), np.int64)
    start[ok] = short * at.plane.page + rows[ok, 0] % at.plane.stride
    labels = np.full(int(rows[:, 2].sum()), FOREIGN)
    fine = np.repeat(ok, rows[:, 2])
    labels[fine] = page[ragged(start[ok], rows[ok, 2])]
    return labels
