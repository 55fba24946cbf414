"""One figure of a plan as SVG: the pages of one decode worker, and beside them those that they are read from.

It needs no script and no font of its own, and is light or dark as its reader prefers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import product

from kvplan.compiler.errors import BadInput
from kvplan.compiler.explain.landing.spans import DECODE, PREFILL, LandingSpan, laid, numbered, pieces, worker_of
from kvplan.compiler.explain.picture.colours import CellColour, cache_colours, split_axes
from kvplan.compiler.explain.picture.page_map import MapCells, PageMap, page_map
from kvplan.plan.planes import Plane
from kvplan.plan.types import Plan, Planes, Side, Worker

MAP, GAP, LEFT, TOP, MOST, LEAST, LEGEND = 340, 96, 66, 58, 256, 26, 22  # pixels
MOST_PAGES = 8  # on a side


@dataclass(frozen=True, slots=True)
class FigurePage:
    """A page of a figure: the plane of a worker, its map, and where the worker's share of every split axis begins."""

    worker: int
    plane: Plane
    map: PageMap
    starts: dict[str, int]
    colours: dict[str, CellColour]

    def hue(self, cells: MapCells, turns: tuple[int, ...]) -> tuple[int, float]:
        """The hue of one cell, by its turn of every loop."""
        colour = self.colours[cells.tensors[0]]
        if colour.axis is None or colour.axis in dict(self.plane.at):
            return colour.at(dict(self.plane.at).get(colour.axis or "", 0)), colour.strength
        return colour.at(self.index(cells, colour.axis, turns)), colour.strength

    def hues(self) -> set[int]:
        """The hues of all its cells."""
        return {self.hue(cells, turns)[0] for cells in self.map.cells for turns in turns_of(cells)}

    def index(self, cells: MapCells, axis: str, turns: tuple[int, ...]) -> int:
        """The global index on an axis of the first element of a cell."""
        found = self.starts.get(axis, 0)
        for loop, turn in zip(cells.loops, turns, strict=True):
            name, _, weight = loop.axis.partition("/")
            found += turn * loop.each * int(weight or 1) if name == axis else 0
        return found


def turns_of(cells: MapCells) -> Iterator[tuple[int, ...]]:
    """Every cell, by its turn of every loop."""
    return product(*(range(loop.count) for loop in cells.loops))


def figure(plan: Plan, reader: int = 0) -> str:
    """The SVG of the first group that decode worker `reader` reads, of its first layer. Raises BadInput (S024)."""
    every = pieces(plan, reader)
    if not every:
        raise BadInput("S024", f"decode worker {reader} reads nothing", "give --worker of one that does")
    met = [piece for piece in every if piece.read.pair == every[0].read.pair]
    layer = _first(plan, met).layer
    sides = [_pages(plan, met, layer, side)[:MOST_PAGES] for side in (PREFILL, DECODE)]
    most = max((page.map.bytes for pages in sides for page in pages), default=1)
    columns = [_column(pages, side, most) for side, pages in enumerate(sides)]
    bottom = max(end for _, ends in columns for end in ends)
    legend, height = _legend(sides, bottom + 26)
    width = 2 * (LEFT + MAP) + GAP + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(_title(plan, reader))}">',
        f"<style>\n{_style()}</style>",
        '<defs><pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" style="stroke: var(--hatch)"/></pattern></defs>',
        f'<rect class="back" width="{width}" height="{height}"/>',
        f'<text class="title" x="8" y="20">{escape(_title(plan, reader))}</text>',
        *(_text(_x(side), 42, f"{name} {plan_side.key}", "who") for side, name, plan_side in _sides(plan)),
        *columns[0][0],
        *columns[1][0],
        *_ways(columns[0][1], columns[1][1]),
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _style() -> str:
    return files("kvplan.compiler.explain.picture").joinpath("figure.css").read_text(encoding="utf-8")


def _sides(plan: Plan) -> list[tuple[int, str, Side]]:
    return [(PREFILL, "prefill", plan.prefill), (DECODE, "decode", plan.decode)]


def _title(plan: Plan, reader: int) -> str:
    return f"{plan.title}: what decode worker {reader} reads, a page of a layer, bytes to scale"


def _x(side: int) -> int:
    return LEFT + side * (LEFT + MAP + GAP)


def _first(plan: Plan, met: list[LandingSpan]) -> Plane:
    """The first plane that is written."""
    number, _ = next(laid(met[0], DECODE))
    return numbered(plan.decode.workers[met[0].reader])[number][0]


def _pages(plan: Plan, met: list[LandingSpan], layer: int | None, side: int) -> list[FigurePage]:
    """The pages of that layer that the pieces touch on one side, each once, in order."""
    touched = {(worker_of(piece, side), number) for piece in met for number, _ in laid(piece, side)}
    where = (plan.prefill, plan.decode)[side]
    found = [_page(plan, where, worker, *numbered(where.workers[worker])[number]) for worker, number in sorted(touched)]
    return [page for page in found if page.plane.layer in (layer, None)]


def _page(plan: Plan, side: Side, worker: int, plane: Plane, entry: Planes) -> FigurePage:
    drawn = page_map(entry, split_axes(side, entry.cache))
    return FigurePage(worker, plane, drawn, _starts(side.workers[worker], entry), cache_colours(plan, entry.cache))


def _starts(worker: Worker, entry: Planes) -> dict[str, int]:
    return {axis: held[0] for cache, axis, held in worker.holds if cache == entry.cache}


def _column(pages: list[FigurePage], side: int, most: int) -> tuple[list[str], list[float]]:
    """The pages of a side one below the other, and the middles and the end of what was drawn."""
    lines: list[str] = []
    middles: list[float] = []
    top = TOP
    for page in pages:
        height = max(LEAST, round(MOST * page.map.bytes / most))
        lines += [_text(_x(side), top + 8, f"worker {page.worker}, {page.plane.name}, {page.map.bytes:,} B")]
        lines += _drawn(page, _x(side), top + 30, height)
        middles.append(top + 30 + height / 2)
        top += height + 48
    return lines, [*middles, top - 18]


def _drawn(page: FigurePage, x: int, y: int, height: int) -> Iterator[str]:
    rows = -(-page.map.bytes // page.map.row)
    paths: dict[tuple[int, float], list[str]] = {}
    edge = ' class="cell"' if height / rows > 4 else ""
    for cells in page.map.cells:
        for turns in turns_of(cells):
            at = cells.offset + sum(loop.step * turn for loop, turn in zip(cells.loops, turns, strict=True))
            boxes = _boxes(page.map, at, at + cells.bytes, x, y, height / rows)
            paths.setdefault(page.hue(cells, turns), []).extend(boxes)
    yield f'<path class="pad" d="{"".join(_boxes(page.map, 0, page.map.bytes, x, y, height / rows))}"/>'
    for (hue, strength), boxes in paths.items():
        back = f'<path class="under" d="{"".join(boxes)}"/>'
        yield f'{back}<path{edge} style="fill: var(--h{hue})" fill-opacity="{strength}" d="{"".join(boxes)}"/>'
    yield f'<rect class="frame" x="{x}" y="{y}" width="{MAP}" height="{height}"/>'
    yield from _rows(page, x, y, height / rows, rows)
    yield from _heads(page, x, y)


def _boxes(page: PageMap, low: int, high: int, x: int, y: int, each: float) -> list[str]:
    """Bytes [low, high) as a box in every row that has some of them."""
    found = []
    for row in range(low // page.row, (high - 1) // page.row + 1):
        start, end = max(low - row * page.row, 0), min(high - row * page.row, page.row)
        wide = [x + MAP * byte / page.row for byte in (start, end)]
        found.append(f"M{_n(wide[0])} {_n(y + row * each)}H{_n(wide[1])}v{_n(each)}H{_n(wide[0])}z")
    return found


def _rows(page: FigurePage, x: int, y: int, each: float, rows: int) -> Iterator[str]:
    """What a row is, where rows are turns of a loop."""
    loops = [loop for loop in page.map.cells[0].loops if loop.step >= page.map.row] if page.map.cells else []
    skip = max(1, -(-11 // max(1, int(each))))
    for row in range(0, rows if loops else 0, skip):
        turns = tuple(row * page.map.row // loop.step % loop.count for loop in page.map.cells[0].loops)
        axis = loops[-1].axis.partition("/")[0]
        name = f"{axis} {page.index(page.map.cells[0], axis, turns)}"
        yield _text(x - 6, y + row * each + min(each / 2, 9) + 4, name, "end")


def _heads(page: FigurePage, x: int, y: int) -> Iterator[str]:
    """Above the first row: the turns of a loop inside it, as many as there is room for, or the tensors."""
    first = page.map.cells[0]
    inner = next((loop for loop in first.loops if loop.step < page.map.row and page.map.row % loop.step == 0), None)
    if inner is None:
        shown = [cells for cells in page.map.cells if cells.offset < page.map.row]
        spots = [("+".join(cells.tensors), cells.offset + min(cells.bytes, page.map.row) / 2) for cells in shown]
        yield from (_text(x + MAP * middle / page.map.row, y - 5, text, "mid") for text, middle in spots)
        return
    axis = inner.axis.partition("/")[0]
    numbers = [str(page.starts.get(axis, 0) + turn * inner.each) for turn in range(inner.count)]
    wide, alone = MAP * inner.step / page.map.row, len(axis) + 2 + len(numbers[-1])
    skip = max(1, -(-(len(numbers[-1]) * 6 + 4) // max(1, int(wide))))
    yield from [] if alone * 6 < wide else [_text(x - 6, y - 5, axis, "end")]
    for turn in range(0, inner.count, skip):
        text = f"{axis} {numbers[turn]}" if alone * 6 < wide else numbers[turn]
        yield _text(x + (turn + 0.5) * wide, y - 5, text, "mid")


def _ways(sources: list[float], targets: list[float]) -> Iterator[str]:
    """A line from each page that is read to the pages that it lands in."""
    left, right = _x(PREFILL) + MAP + 4, _x(DECODE) - LEFT + 6
    for start, end in product(sources[:-1], targets[:1]):
        middle = (left + right) / 2
        yield f'<path class="way" d="M{left} {_n(start)}C{middle} {_n(start)} {middle} {_n(end)} {right} {_n(end)}"/>'
        yield f'<path class="way" d="M{right - 5} {_n(end - 3.5)}L{right} {_n(end)}l-5 3.5"/>'


def _legend(sides: Iterable[list[FigurePage]], top: float) -> tuple[list[str], int]:
    """A swatch for each hue that is drawn and for each tensor, and the height of the figure."""
    pages = [page for side in sides for page in side]
    colours = {"+".join(c.tensors): page.colours[c.tensors[0]] for page in pages for c in page.map.cells}
    parts = _parts(colours.values(), {hue for page in pages for hue in page.hues()})
    entries = [(f"var(--h{hue})", 1.0, name) for hue, name in parts]
    for tensor, colour in colours.items() if len(colours) > 1 or not parts else ():
        shade = ("var(--text)", 0.75 * colour.strength) if colour.axis else (f"var(--h{colour.hue})", 1.0)
        entries.append((*shade, tensor))
    lines, x, y = [], 8.0, top
    for fill, strength, name in entries:
        if x + 30 + 6.2 * len(name) > 2 * (LEFT + MAP) + GAP:
            x, y = 8.0, y + LEGEND
        box = f'<rect x="{_n(x)}" y="{_n(y - 10)}" width="12" height="12" rx="2" style="fill: {fill}"'
        lines += [f'{box} fill-opacity="{_n(strength)}"/>', _text(x + 17, y, name)]
        x += 36 + 6.2 * len(name)
    return lines, round(y + 14)


def _parts(colours: Iterable[CellColour], drawn: Collection[int]) -> list[tuple[int, str]]:
    """What each hue that is drawn stands for: `head 0–7, group 0`."""
    names: dict[int, dict[str, None]] = {}
    for colour in colours:
        for hue in range(colour.hues if colour.axis else 0):
            low, high = (-(-part * colour.extent // colour.hues) for part in (hue, hue + 1))
            held = f"{low}" if high - low == 1 else f"{low}–{high - 1}"
            names.setdefault(hue, {})[f"{colour.axis} {held}"] = None
    return [(hue, ", ".join(known)) for hue, known in sorted(names.items()) if hue in drawn]


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    look = f' class="{kind}"' if kind else ""
    return f'<text{look} x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
