"""One figure of a plan as SVG: the pages of one decode worker, and beside them the pages that it reads.

It needs no script and no font of its own, and follows its reader's light or dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from kvplan.compiler.drawing.tensors import page_of
from kvplan.compiler.errors import BadInput
from kvplan.compiler.explain.landing.spans import (
    DECODE,
    PREFILL,
    LandingSpan,
    laid,
    numbered,
    pieces,
    planes_of,
    worker_of,
)
from kvplan.compiler.explain.picture.colours import ByteOwner, TensorColour, plan_colours, split_axes
from kvplan.compiler.explain.picture.page_map import MapBox, PageMap, page_map, whole
from kvplan.plan.planes import Plane
from kvplan.plan.spans import group_named
from kvplan.plan.types import Plan, Side

MAP, GAP, LEFT, TOP, MOST, LEAST, LEGEND = 340, 80, 80, 58, 256, 26, 22  # pixels
WIDTH = 2 * (LEFT + MAP) + GAP + 12
LINE, CHARACTER, BOLD = 12, 6.2, 8  # pixels: a label's height, a label character's and a title character's width
MOST_PAGES = 8  # on a side


@dataclass(frozen=True, slots=True)
class FigurePage:
    """A page of a figure: the plane of a worker with its number, and its map."""

    worker: int
    number: int
    plane: Plane
    map: PageMap

    @property
    def owners(self) -> list[ByteOwner]:
        """The owners of the page's bytes."""
        return [owner for owner, _ in self.map.boxes]


def figure(plan: Plan, reader: int = 0) -> str:
    """Return the SVG of the first layer in the first group that a decode worker reads. Raises BadInput (S024)."""
    every = pieces(plan, reader)
    if not every:
        raise BadInput("S024", f"decode worker {reader} reads nothing", "give --worker of one that does")
    met = [piece for piece in every if piece.read.groups == every[0].read.groups]
    layer = _first(plan, met).layer
    sides = [_pages(plan, met, layer, side) for side in (PREFILL, DECODE)]
    most = max((page.map.bytes for pages in sides for page in pages), default=1)
    columns = [_column(pages, side, most) for side, pages in enumerate(sides)]
    bottom = max(end for _, ends in columns for end in ends)
    title = _title(plan, reader, every[0].read.groups)
    legend, height = _legend(sides, bottom + 26)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>\n{_style()}</style>",
        '<defs><pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" style="stroke: var(--hatch)"/></pattern></defs>',
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        _text(8, 20, _short(title, WIDTH - 16, BOLD), "title"),
        *(_text(_x(side), 42, _short(f"{name} {where.key}", MAP), "who") for side, name, where in _sides(plan)),
        *columns[0][0],
        *columns[1][0],
        *_ways(_meet(met, sides), columns[0][1], columns[1][1]),
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _style() -> str:
    return files("kvplan.compiler.explain.picture").joinpath("figure.css").read_text(encoding="utf-8")


def _sides(plan: Plan) -> list[tuple[int, str, Side]]:
    return [(PREFILL, "prefill", plan.prefill), (DECODE, "decode", plan.decode)]


def _title(plan: Plan, reader: int, pair: str) -> str:
    group = f", {pair}" if len(plan.group_pairs) > 1 else ""
    return f"{plan.title}{group}: what decode worker {reader} reads, a page of a layer, bytes to scale"


def _x(side: int) -> int:
    return LEFT + side * (LEFT + MAP + GAP)


def _first(plan: Plan, met: list[LandingSpan]) -> Plane:
    """Return the first plane that is written."""
    number, _ = next(laid(met[0], DECODE))
    return numbered(plan.decode.workers[met[0].reader])[number][0]


def _pages(plan: Plan, met: list[LandingSpan], layer: int | None, side: int) -> list[FigurePage]:
    """Return the first pages of that layer that the pieces touch on one side, each once, in order."""
    touched = {(worker_of(piece, side), number) for piece in met for number, _ in laid(piece, side)}
    where, colours = (plan.prefill, plan.decode)[side], plan_colours(plan)
    drawn = [
        (n, number) for n, number in sorted(touched) if numbered(where.workers[n])[number][0].layer in (layer, None)
    ]
    return [_page(where, worker, number, colours) for worker, number in drawn[:MOST_PAGES]]


def _page(side: Side, worker: int, number: int, colours: Mapping[str, Mapping[str, TensorColour]]) -> FigurePage:
    plane, entry = numbered(side.workers[worker])[number]
    page = page_of(side.workers[worker], entry, group_named(side, entry.group), plane)
    return FigurePage(worker, number, plane, page_map(page, split_axes(side, page.cache), colours[page.cache]))


def _column(pages: list[FigurePage], side: int, most: int) -> tuple[list[str], list[float]]:
    """Draw the pages of a side one below the other; return the lines, and the middles and the end of the drawing."""
    lines: list[str] = []
    middles: list[float] = []
    top = TOP
    for page in pages:
        height = max(LEAST, round(MOST * page.map.bytes / most))
        said = f"worker {page.worker}, {page.plane.name}, {page.map.bytes:,} B"
        lines += [_text(_x(side), top + 8, _short(said, MAP))]
        lines += _drawn(page.map, _x(side), top + 30, height)
        middles.append(top + 30 + height / 2)
        top += height + 48
    return lines, [*middles, top - 18]


def _drawn(page: PageMap, x: int, y: int, height: int) -> Iterator[str]:
    each = height / -(-page.bytes // page.row)
    yield f'<path class="pad" d="{"".join(_path(page, box, x, y, each) for box in whole(page.bytes, page.row))}"/>'
    for owner, boxes in page.boxes:
        path = "".join(_path(page, box, x, y, each) for box in boxes)
        edged = all((box.end - box.first) * each > 4 and (box.high - box.low) * MAP > 3 * page.row for box in boxes)
        edge = ' class="cell"' if edged else ""
        look = f'{edge} style="fill: var(--h{owner.hue})" fill-opacity="{owner.strength}"'
        yield f'<path class="under" d="{path}"/><path{look} d="{path}"/>'
    yield f'<rect class="frame" x="{x}" y="{y}" width="{MAP}" height="{height}"/>'
    yield from _row_labels(page, x, y, each)
    yield from _head_labels(page, x, y)


def _path(page: PageMap, box: MapBox, x: int, y: int, each: float) -> str:
    low, high = (x + MAP * byte / page.row for byte in (box.low, box.high))
    return f"M{_n(low)} {_n(y + box.first * each)}H{_n(high)}v{_n((box.end - box.first) * each)}H{_n(low)}z"


def _row_labels(page: PageMap, x: int, y: int, each: float) -> Iterator[str]:
    """Yield the labels of rows that have room, the most important first."""
    taken: list[float] = []
    height = max(-(-page.bytes // page.row) * each, LINE)
    for label in page.rows:
        down = (label.row + 0.5) * each if each > LINE else label.row * each + LINE / 2
        if down <= height - LINE / 2 + 1 and all(abs(down - other) >= LINE for other in taken):
            taken.append(down)
            name = f"{label.name} {label.index}" if label.name else f"{label.index:,} B"
            yield _text(x - 6, y + down + 4, _short(name, LEFT - 8), "end")


def _head_labels(page: PageMap, x: int, y: int) -> Iterator[str]:
    """Yield the labels above the first row that have room; only their numbers if names do not fit."""
    names = [label.name if label.index is None else f"{label.name} {label.index}" for label in page.heads]
    wide = [MAP * (label.high - label.low) / page.row for label in page.heads]
    skip, crowded = 1, any(_width(name) > room for name, room in zip(names, wide, strict=True))
    if crowded and all(label.index is not None for label in page.heads):
        yield _text(x - 6, y - 5, _short(page.heads[0].name, LEFT - 8), "end")
        names = [str(label.index) for label in page.heads]
        skip = max(1, math.ceil((_width(names[-1]) + 4) / wide[0]))
    for label, name, room in zip(page.heads[::skip], names[::skip], wide[::skip], strict=True):
        if _width(name) <= room * skip:
            yield _text(x + MAP * (label.low + label.high) / 2 / page.row, y - 5, name, "mid")


def _meet(met: list[LandingSpan], sides: list[list[FigurePage]]) -> list[tuple[int, int]]:
    """Return which drawn prefill pages are read into which drawn decode pages, by their places."""
    places = [{(page.worker, page.number): place for place, page in enumerate(pages)} for pages in sides]
    keys = {((piece.read.worker, theirs), (piece.reader, ours)) for piece in met for theirs, ours in planes_of(piece)}
    known = [(one, other) for one, other in keys if one in places[PREFILL] and other in places[DECODE]]
    return sorted((places[PREFILL][one], places[DECODE][other]) for one, other in known)


def _ways(met: list[tuple[int, int]], sources: list[float], targets: list[float]) -> Iterator[str]:
    """Yield a line from each page that is read to the pages that it is written to."""
    left, right = _x(PREFILL) + MAP + 4, _x(DECODE) - LEFT
    for start, end in ((sources[one], targets[other]) for one, other in met):
        middle = (left + right) / 2
        yield f'<path class="way" d="M{left} {_n(start)}C{middle} {_n(start)} {middle} {_n(end)} {right} {_n(end)}"/>'
        yield f'<path class="way" d="M{right - 5} {_n(end - 3.5)}L{right} {_n(end)}l-5 3.5"/>'


def _legend(sides: Iterable[list[FigurePage]], top: float) -> tuple[list[str], int]:
    """Return a swatch for each drawn part and for each tensor, and the height of the figure."""
    owners = [owner for side in sides for page in side for owner in page.owners]
    parts: dict[int, dict[str, None]] = {}
    for owner in (owner for owner in owners if owner.part):
        parts.setdefault(owner.hue, {})[owner.part] = None
    entries = [(f"var(--h{hue})", 1.0, ", ".join(known)) for hue, known in sorted(parts.items())]
    tensors = {owner.tensor: owner for owner in owners}
    for tensor, owner in tensors.items() if len(tensors) > 1 or not parts else ():
        shade = ("var(--text)", 0.75 * owner.strength) if owner.part else (f"var(--h{owner.hue})", owner.strength)
        entries.append((*shade, tensor))
    lines, x, y = [], 8.0, top
    for fill, strength, name in entries:
        if x + 30 + _width(name) > WIDTH:
            x, y = 8.0, y + LEGEND
        box = f'<rect x="{_n(x)}" y="{_n(y - 10)}" width="12" height="12" rx="2" style="fill: {fill}"'
        lines += [f'{box} fill-opacity="{_n(strength)}"/>', _text(x + 17, y, name)]
        x += 36 + _width(name)
    return lines, round(y + 14)


def _width(text: str) -> float:
    """Return the approximate greatest width of a label's text in pixels, because fonts differ."""
    return len(text) * CHARACTER


def _short(text: str, room: float, character: float = CHARACTER) -> str:
    """Return the text, shortened if it has no room."""
    most = int(room / character)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    look = f' class="{kind}"' if kind else ""
    return f'<text{look} x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
