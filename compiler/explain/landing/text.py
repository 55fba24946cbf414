"""Landings as text: the pages of both sides to one scale, a table of letters, and the reasons for the cuts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from textwrap import wrap

import numpy as np

from kvplan.compiler.drawing.bars import LEFT_OUT, PADDING, bar, levels
from kvplan.compiler.drawing.pieces import pieces as pieces_of_page
from kvplan.compiler.explain.landing.spans import (
    DECODE,
    PREFILL,
    LandedPages,
    LandingSpan,
    laid,
    pages,
    pieces,
    step,
    worker_of,
)
from kvplan.compiler.words import columns, many, part_name
from kvplan.dsl.text.diagnostics import listed, ranges
from kvplan.plan.match import MatchRule
from kvplan.plan.spans import group_named
from kvplan.plan.types import Blocks, Group, GroupPair, Plan

SIDES = ("prefill", "decode")
WIDTH = 92  # columns
MOST_PAGES = 6  # different pages of one side, and rows of a table; the rest is counted
MOST_ROWS = 24
MOST_ZOOMS = 3  # loops of a page that get a bar of their own
MOST_TIMES = 36  # columns
MOST_RUNS = 8
MOST_NAMES = 4


def landing(plan: Plan, reader: int, width: int = WIDTH) -> list[str]:
    """Draw the pairs of groups and caches that a decode worker reads, once for those that differ only in layers.

    Bars and tables are at most `width` columns and a few more; sentences are not wrapped.
    """
    alike: dict[tuple[str, ...], list[Sequence[LandingSpan]]] = {}
    for (_, cache), found in groupby(pieces(plan, reader), key=lambda piece: (piece.read.groups, piece.read.cache)):
        one = tuple(found)
        few = [_few_layers(piece) for piece in one]
        alike.setdefault((cache, *section(plan, few, width, name=False)), []).append(one)
    lines: list[str] = []
    for ones in alike.values():
        lines += ["", *_title(plan, ones), *(f"  {line}" if line else "" for line in section(plan, ones[0], width))]
    return lines[1:] or [f"decode worker {reader} reads nothing"]


def _few_layers(piece: LandingSpan) -> LandingSpan:
    """Return the piece with only two layers if each has pages of its own: any number looks the same."""
    loops = [replace(loop, count=2) if loop.prefill[0] and loop.decode[0] else loop for loop in piece.nest.loops]
    return replace(piece, nest=replace(piece.nest, loops=tuple(loops)))


def section(plan: Plan, found: Sequence[LandingSpan], width: int = WIDTH, name: bool = True) -> list[str]:
    """Return decode pages, their prefill pages to the same scale, the table of letters, the reasons for the cuts.

    Without `name` the lines do not distinguish the pages of different layers.
    """
    sides = [pages(plan, found, side) for side in (DECODE, PREFILL)]
    longest = max(page.bytes for side in sides for page in side)
    drawn = [line for side in sides for line in (*_side(side, side if name else (), longest, width), "")]
    rows = [row for piece in found[:MOST_ROWS] for row in _rows(piece)]
    head = ("", "from", "takes", "tensors", "prefill at", "decode at", "bytes", "how often")
    more = [f"{LEFT_OUT} {many(len(found) - MOST_ROWS, 'more piece')}"] if len(found) > MOST_ROWS else []
    return [*drawn, *columns(head, rows, width), *more, "", *_cuts(found), *_runs(plan, found)]


def _side(side: Sequence[LandedPages], among: Sequence[LandedPages], longest: int, width: int) -> list[str]:
    """Return the first pages of one side, and the number of the others."""
    shown, more = side[:MOST_PAGES], len(side) - MOST_PAGES
    lines = [line for page in shown for line in _page(page, among, longest, width)]
    lines += [f"{LEFT_OUT} {many(more, 'more page')} like these"] if more > 0 else []
    return lines + ([_empty(side[0])] if any(page.written < page.bytes for page in shown) else [])


def _empty(page: LandedPages) -> str:
    return "dotted: nothing is written there" if page.side == DECODE else "blank: not for this decode worker"


def _page(page: LandedPages, among: Sequence[LandedPages], longest: int, width: int) -> list[str]:
    """Draw a page: in prefill's, bytes for other readers are blank; in decode's, unwritten bytes are dotted."""
    each = "" if len(page.planes) == 1 else " each"
    head = f"{SIDES[page.side]} worker {page.worker}: {_planes(page, among)}{page.bytes:,} B{each}"
    hole = " " if page.side == PREFILL else PADDING
    body = pieces_of_page(page.spans, page.bytes, whole=False)
    first, *inner = levels("", body, page.bytes, which="first")
    zooms = [f"  {line}" for level in inner[:MOST_ZOOMS] for line in level.lines(width - 2, hole)]
    return [head, bar(first, max(1, round(width * page.bytes / longest)), hole), *zooms]


def _planes(page: LandedPages, among: Sequence[LandedPages]) -> str:
    """Return `32 pages, layers 0-31: `, which distinguishes this page from others of the section."""
    part = part_name(page.planes[0].part, (tensor for piece in page.pieces for tensor in piece.nest.tensors))
    axes: dict[str, set[int]] = {}
    for plane in page.planes:
        for axis, index in plane.at:
            axes.setdefault(axis, set()).add(index)
    where = "".join(f"{axis} {ranges(found)}, " for axis, found in axes.items())
    every = {plane.layer for other in among for plane in other.planes}
    mine = {plane.layer for plane in page.planes if plane.layer is not None}
    layers = f"layers {ranges(mine)}, " if among and mine and mine != every else ""
    return f"{f'{part}, ' if part else ''}{where}{layers}{many(len(page.planes), 'page')} of "


def _title(plan: Plan, ones: Sequence[Sequence[LandingSpan]]) -> list[str]:
    """Return the cache, the pairs of groups that look the same, their layers and spans."""
    first = ones[0][0]
    names = [one[0].read.groups for one in ones]
    said = ", ".join(names) if len(names) <= MOST_NAMES else f"{names[0]} {LEFT_OUT} {names[-1]}, {len(names)} groups"
    others = "" if names == [first.read.cache] else f" ({said})"
    layers = sorted({len({layer for piece in one for layer in piece.read.layers}) for one in ones})
    counts = sorted({sum(piece.spans for piece in one) for one in ones})
    parts = ", ".join(f"{piece.letter} {piece.spans:,}" for piece in ones[0])
    tokens = next(pair.page_rows * pair.rows for pair in plan.group_pairs if pair.name == first.read.groups)
    of = (
        f" of each group; {names[0]} is drawn"
        if len(ones) > 1
        else f": {parts}"
        if 1 < len(ones[0]) <= MOST_RUNS
        else ""
    )
    moved = f"{_from_to(counts, 'span')} {_unit(first, tokens)}"
    every = f"{'all ' if layers != [1] else ''}{_from_to(layers, 'layer')}"
    return wrap(f"{first.read.cache}{others}: {moved}, {every}{of}", WIDTH)


def _from_to(counts: Sequence[int], what: str) -> str:
    return many(counts[0], what) if len(counts) == 1 else f"{counts[0]:,} to {many(counts[-1], what)}"


def _unit(piece: LandingSpan, tokens: int) -> str:
    if piece.nest.token_step is None:
        return f"a block of {many(tokens, 'token')}" if tokens else "a state"
    return "a run of tokens" if piece.close else "a token"


def _rows(piece: LandingSpan) -> list[tuple[object, ...]]:
    """Return the row of a letter, and further rows if its loops do not fit beside it."""
    nest = piece.nest
    held = ", ".join(f"{axis} {ranges(range(*where))}" for axis, where in piece.holds) or "all"
    tensors = "+".join(nest.tensors[:4]) + (f"+{LEFT_OUT}" if len(nest.tensors) > 4 else "")
    times = [f"x {many(loop.count, loop.axis)}" for loop in nest.loops] or ["once"]
    first, *rest = wrap(" ".join(time.replace(" ", "\xa0") for time in times), MOST_TIMES)
    row = (piece.letter, f"prefill {piece.read.worker}", held, tensors, nest.prefill[1], nest.decode[1], nest.bytes)
    return [(*row, first.replace("\xa0", " ")), *((*[""] * len(row), more.replace("\xa0", " ")) for more in rest)]


def _cuts(found: Sequence[LandingSpan]) -> list[str]:
    """Say why a piece is cut into its spans: how each of its loops continues in either page."""
    said: dict[str, list[str]] = {}
    for piece in found:
        for index, loop in enumerate(piece.nest.loops):
            text = f"x {many(loop.count, loop.axis)}: {_both(piece, index)}"
            said.setdefault(text, []).append(piece.letter)
        if piece.nest.token_step:
            said.setdefault(_tokens(piece), []).append(piece.letter)
    return [
        line
        for text, letters in said.items()
        for line in wrap(f"{_letters(letters)} {text}", WIDTH + 4, subsequent_indent="    ")
    ]


def _letters(letters: Sequence[str]) -> str:
    return " ".join(letters) if len(letters) < 6 else f"{letters[0]} {LEFT_OUT} {letters[-1]}"


def _both(piece: LandingSpan, index: int) -> str:
    prefill, decode = (_continuation(piece, index, side) for side in (PREFILL, DECODE))
    return f"{prefill} on both sides" if prefill == decode else f"prefill {prefill}; decode {decode}"


def _continuation(piece: LandingSpan, index: int, side: int) -> str:
    planes, far = step(piece.nest.loops[index], side)
    if planes:
        return "a page each"
    _, where = next(laid(piece, side))
    inner = [loop for loop in where.loops if loop.step < far]
    gap = far - where.bytes - sum((loop.count - 1) * loop.step for loop in inner)
    if gap > 0:
        return f"every {far:,} B, {gap:,} B between"
    axes = listed([f"{loop.axis}s" for loop in inner], "and")
    return f"every {far:,} B, " + (f"its {axes} between" if inner else "adjacent")


def _tokens(piece: LandingSpan) -> str:
    places = [f"{word} every {far:,} B" for word, far in zip(SIDES, piece.nest.token_step or (), strict=True)]
    tiles = f", further after every {' and '.join(str(hop[0]) for hop in piece.nest.hops)}" if piece.nest.hops else ""
    end = "a run of tokens is one span" if piece.close else "a span a token"
    return f"token after token: {'; '.join(places)}{tiles}: {end}"


def _runs(plan: Plan, found: Sequence[LandingSpan]) -> list[str]:
    """Say which turns of the tokens workers have, if they take turns, and where runs of tokens end."""
    first = found[0]
    pair = next(pair for pair in plan.group_pairs if pair.name == first.read.groups)
    sides = (plan.prefill, plan.decode)
    groups = group_named(plan.prefill, pair.prefill), group_named(plan.decode, pair.decode)
    theirs, ours = (sides[end].workers[worker_of(first, end)].shard for end in (PREFILL, DECODE))
    turns = [
        f"{word} worker {worker} holds tokens {_turns(groups[end], sides[end].workers[worker].shard)} of a request"
        for end, word in enumerate(SIDES)
        if groups[end].shards > 1
        for worker in sorted({worker_of(piece, end) for piece in found})[:MOST_NAMES]
    ]
    return [
        *_shared(plan, found),
        *turns,
        *([] if first.nest.token_step is None else _ends(pair, groups, (theirs, ours))),
    ]


def _shared(plan: Plan, found: Sequence[LandingSpan]) -> list[str]:
    """Say which letters are drawn if several prefill workers fill the same pages in turns."""
    drawn = [piece.letter for page in pages(plan, found, DECODE) for piece in page.pieces]
    others = [piece.letter for piece in found if piece.letter not in drawn]
    if not others:
        return []
    text = f"{_letters(others)}: the same places as {_letters(sorted(set(drawn)))}, for the tokens of other workers"
    return wrap(text, WIDTH + 4, subsequent_indent="    ")


def _turns(each: Group, shard: int) -> str:
    """Return the first tokens of a worker that takes turns of them with others."""
    starts = (shard * each.chunk, (shard + each.shards) * each.chunk)
    return ", ".join(ranges(range(start, start + each.chunk)) for start in starts) + f", {LEFT_OUT}"


def _ends(pair: GroupPair, groups: tuple[Group, Group], shards: tuple[int, int]) -> list[str]:
    """Return the lengths of runs from token 0, if all tokens were needed, until they repeat."""
    sizes = [size * each.shards for each in groups for size in (each.kernel, each.chunk)]
    again = math.lcm(*sizes)
    end = min(again, MOST_RUNS * max(sizes))
    blocks = Blocks(0, np.arange(end, dtype=np.int64))
    counts = MatchRule(*groups, rows=pair.rows).runs((0, end), blocks, blocks, shards).count.tolist()
    word = "token" if pair.rows == 1 else f"row of {pair.rows} tokens"
    if {*counts} == {1}:
        return [f"every {word} is a run"]
    rows = "tokens" if pair.rows == 1 else f"rows of {pair.rows} tokens"
    whole = len(counts) <= MOST_RUNS and end == again
    text = ", ".join(f"{count:,}" for count in counts[:MOST_RUNS])
    every = f"after {text} {rows}, {'then again' if whole else LEFT_OUT}"
    if whole and len({*counts}) == 1:
        every = f"every {counts[0]:,} {rows}"
    return wrap(f"runs end where a page of either side ends: {every}", WIDTH + 4)
