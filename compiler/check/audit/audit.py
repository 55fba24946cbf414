"""Audit: execute another program's copies on labels, and judge the result by naive indexing of the two layouts.

No plan is compiled. Pages are compared a few at a time. A label says which byte of the caches a byte is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.audit.cut import (
    NOWHERE,
    Pieces,
    at_page_end,
    at_source,
    count,
    in_one_page,
    into_blocks,
    move,
)
from kvplan.compiler.check.audit.judge import Judge, WrittenPages
from kvplan.compiler.check.audit.verdict import Finding, Verdict
from kvplan.compiler.check.copy_list import Key, by_plane, check_numbers, check_places
from kvplan.compiler.check.labels import FOREIGN, PADDING, UNWRITTEN, Atlas, Labels, Mask, paint, ragged
from kvplan.compiler.check.pages import PlanePages, labelled, needed, pages_of
from kvplan.compiler.check.request import Copy, check
from kvplan.compiler.compat import check_pair
from kvplan.plan.request import Request

BATCH = 1 << 21
NONE = np.zeros((0, 2), np.int64)
NO_PLANE: Key = (-1, "")
ReadPlane = tuple[int, Key, PlanePages]
Watched = Callable[[Sequence[ReadPlane]], Iterable[ReadPlane]]


@dataclass(frozen=True, slots=True)
class Survey:
    """One request on a pair of sides: its blocks in every plane of either side, the labels of all bytes, and the decode
    caches that prefill lacks."""

    prefill: Mapping[Key, PlanePages]
    decode: Mapping[Key, PlanePages]
    sides: tuple[BoundSide, BoundSide]
    request: Request
    regions: Atlas
    lacking: frozenset[str]

    def planes(self) -> Iterator[ReadPlane]:
        """Yield the decode planes of caches that prefill has, too, in order: number, key, blocks."""
        kept = (item for item in self.decode.items() if item[1].plane.cache not in self.lacking)
        return ((number, key, target) for number, (key, target) in enumerate(kept))


def unchecked_survey(prefill: BoundSide, decode: BoundSide, request: Request) -> Survey:
    """Return the survey of a request that is known to fit the sides."""
    both = pages_of(prefill, request.prefill), pages_of(decode, request.decode)
    lacking = {cache.name for cache in decode.caches} - {cache.name for cache in prefill.caches}
    return Survey(*both, (prefill, decode), request, labelled(prefill, decode, request), frozenset(lacking))


def survey(prefill: BoundSide, decode: BoundSide, request: Request) -> Survey:
    """Check a request and return its survey. Raises Refused (C119, C120, C130..C137), BadInput (Q007..Q017)."""
    check_pair(prefill, decode)
    check(request, prefill, decode)
    return unchecked_survey(prefill, decode, request)


def audit(prefill: BoundSide, decode: BoundSide, request: Request, copies: Iterable[Copy], limit: int = 5) -> Verdict:
    """Judge `copies` for `request`: every needed byte written once, from its own coordinate, nothing outside.

    The verdict describes the first wrong byte and `limit` more with other causes. Raises Refused and
    BadInput as `survey`, BadInput (Q031..Q035) for copies.
    """
    every, made = survey(prefill, decode, request), tuple(copies)
    _check_copies(every, made)
    return judged(every, made, limit)


def judged(
    every: Survey, copies: tuple[Copy, ...], limit: int, strict: bool = False, watched: Watched = iter
) -> Verdict:
    """Judge copies. If `strict`, they are a plan's: each lies in one page on either side, and unneeded bytes that
    another connector may write are faults. `watched` wraps the decode planes and yields each as its check begins."""
    moves, judge = by_plane(copies), Judge(every.regions, limit, strict, len(copies))
    for number, key, target in watched(tuple(every.planes())):
        mine, strays = _in_pages(every, target, moves.get(key, {})) if strict else (moves.get(key, {}), NONE)
        ready = _prepared(every, target, mine)
        judge.plane(number, key, np.concatenate([ready.outside, strays]), ready.padding)
        need = needed(every.sides[1], target.plane, every.request)
        for first, last in _batches(target):
            judge.pages(number, key, target, (first, last), _arrived_pages(every, target, ready, first, last), need)
    known = {key for _, key, _ in every.planes()}
    for key in (key for key in moves if key not in known):
        judge.lacking(len(every.decode), key, np.concatenate([rows[:, 1:3] for rows in moves[key].values()]))
    # Add the copies that wrote the first byte of every finding.
    verdict = judge.verdict()
    return replace(verdict, findings=tuple(replace(f, copies=_writers(f, moves)) for f in verdict.findings))


def _in_pages(every: Survey, target: PlanePages, by: Mapping[Key, Labels]) -> tuple[dict[Key, Labels], Labels]:
    """Return the copies that land in one page of the request, under NO_PLANE if they do not read one such page;
    and what the others write, as (offset, bytes)."""
    found: dict[Key, Labels] = {}
    strays, foreign = [NONE], []
    for at, rows in by.items():
        lands = in_one_page(target, rows[:, 1], rows[:, 2])
        reads = in_one_page(every.prefill.get(at), rows[:, 0], rows[:, 2])
        strays.append(rows[~lands, 1:3])
        foreign.append(rows[lands & ~reads])
        found[at] = rows[lands & reads]
    return {**found, NO_PLANE: np.concatenate(foreign)} if foreign else found, np.concatenate(strays)


def _check_copies(every: Survey, copies: tuple[Copy, ...]) -> None:
    check_numbers(copies)
    here, there = ({key: at.plane for key, at in planes.items()} for planes in (every.prefill, every.decode))
    check_places(by_plane(copies), here, there, *every.sides)


@dataclass(frozen=True, slots=True)
class PlaneCopies:
    """The copies to one decode plane: pieces by prefill plane, sorted by row, with their sources; and bytes outside."""

    pieces: Mapping[Key, tuple[Pieces, Labels]]
    outside: Labels
    padding: int


def _prepared(every: Survey, target: PlanePages, by: Mapping[Key, Labels]) -> PlaneCopies:
    pieces: dict[Key, tuple[Pieces, Labels]] = {}
    outside, padding = [NONE], 0
    for at, rows in by.items():
        mine = into_blocks(target, rows[:, 1], rows[:, 2])
        outside.append(_parts_outside(mine, rows))
        inside, tail = at_page_end(mine, target.plane.page)
        between = _are_padding(every.prefill.get(at), tail, rows)
        padding += int(tail.size[between].sum())
        stray = tail.only(~between)
        outside.append(np.stack([rows[stray.copy, 1] + stray.done, stray.size], 1))
        inside = inside.only(np.argsort(inside.row, kind="stable"))
        pieces[at] = inside, rows[inside.copy, 0] + inside.done
    return PlaneCopies(pieces, np.concatenate(outside), padding)


def _parts_outside(mine: Pieces, rows: Labels) -> Labels:
    """Return the parts of copies that lie in no block of the table, as (offset, bytes), one per copy that has some."""
    kept = np.zeros(len(rows), np.int64)
    np.add.at(kept, mine.copy, mine.size)
    ends = mine.done + mine.size
    last = np.append((mine.copy[1:] != mine.copy[:-1]) | (mine.done[1:] != ends[:-1]), True)[: len(ends)]
    begins = np.zeros(len(rows), np.int64)
    # Backwards, so that the end of a copy's first run of pieces remains, or 0 if that run is not its beginning.
    begins[mine.copy[last][::-1]] = ends[last][::-1]
    begins[mine.copy[::-1]] = np.where(mine.done[::-1] > 0, 0, begins[mine.copy[::-1]])
    gone = kept < rows[:, 2]
    return np.stack([rows[gone, 1] + begins[gone], rows[gone, 2] - kept[gone]], 1)


def _are_padding(source: PlanePages | None, tail: Pieces, rows: Labels) -> Mask:
    """Return a mask of the pieces behind a page that also come from behind a page of the request."""
    if source is None:
        return np.zeros(len(tail.copy), np.bool_)
    read = at_source(source, rows[tail.copy, 0] + tail.done, tail.size)
    bad = (read.row == NOWHERE) | (read.start < source.plane.page)
    found: Mask = np.bincount(read.copy[bad], minlength=len(tail.copy)) == 0
    return found


def _batches(target: PlanePages) -> Iterator[tuple[int, int]]:
    """Yield a plane's pages in batches of a few million labels."""
    step, count = max(1, BATCH // target.plane.page), len(target.pages.ids)
    return ((first, min(first + step, count)) for first in range(0, count, step))


def _arrived_pages(
    every: Survey,
    target: PlanePages,
    ready: PlaneCopies,
    first: int,
    last: int,
) -> WrittenPages:
    """Return pages `first` to `last` of a decode plane as the copies leave them."""
    page = target.plane.page
    holds = np.full((last - first) * page, UNWRITTEN)
    writes, ends = np.zeros_like(holds), np.zeros(holds.size, np.bool_)
    for at, (pieces, offset) in ready.pieces.items():
        begin, end = np.searchsorted(pieces.row, (first, last))
        for some in _portions(pieces.size[begin:end]):
            now = pieces.only(np.arange(begin + some.start, begin + some.stop))
            start, read = (now.row - first) * page + now.start, offset[begin + some.start : begin + some.stop]
            labels = _read(every, at, read, now.size)
            move(labels, np.cumsum(now.size) - now.size, holds, start, now.size)
            count(writes, start, now.size)
            ends[start] = ends[start + now.size - 1] = True
    return WrittenPages(holds.reshape(-1, page), writes.reshape(-1, page), ends.reshape(-1, page))


def _portions(size: Labels) -> Iterator[range]:
    """Yield runs of pieces with a few million bytes together, or a single larger piece."""
    ends, first = np.cumsum(size), 0
    while first < len(size):
        before = ends[first] - size[first]
        last = max(first + 1, int(np.searchsorted(ends, before + BATCH, "right")))
        yield range(first, last)
        first = last


def _read(every: Survey, at: Key, offset: Labels, size: Labels) -> Labels:
    """Return the labels of `size` bytes at every `offset` of a prefill plane, in a row; FOREIGN outside the request."""
    source, labels = every.prefill.get(at), np.full(int(size.sum()), FOREIGN)
    if source is None:
        return labels
    pieces = at_source(source, offset, size)
    begins = (np.cumsum(size) - size)[pieces.copy] + pieces.done
    own = pieces.row != NOWHERE
    inside, tail = at_page_end(replace(pieces, done=begins).only(own), source.plane.page)
    labels[ragged(tail.done, tail.size)] = PADDING
    step = max(1, BATCH // source.plane.page)
    rows, short = np.unique(inside.row, return_inverse=True)
    for first in range(0, len(rows), step):
        now = inside.only((short >= first) & (short < first + step))
        used = rows[first : first + step]
        pages = paint(source.plane, every.regions, source.pages.token[used])
        where = np.searchsorted(used, now.row) * source.plane.page + now.start
        move(pages.reshape(-1), where, labels, now.done, now.size)
    return labels


def _writers(finding: Finding, moves: Mapping[Key, Mapping[Key, Labels]]) -> tuple[int, ...]:
    numbers: list[int] = []
    for rows in moves.get((finding.worker, finding.plane), {}).values():
        hit = (rows[:, 1] <= finding.offset) & (finding.offset < rows[:, 1] + rows[:, 2])
        numbers += rows[hit, 3].tolist()
    return tuple(sorted(numbers)[:4])
