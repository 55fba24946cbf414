"""Check stages: with a table's ranges as a stop between the sides, each byte still comes from its own place.

An image holds its ranges byte for byte. So a copy from the image of a prefill page, or into that of a decode page,
equals the copy between the pages themselves, which match.py and cover.py judge, if every span lies in one range.
An image that is sent whole (`pack`) must be written whole. Counting shows that, because no byte is written
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import prod

from kvplan.compiler.errors import ProofFailed
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.planes import planes
from kvplan.plan.spans import group_named, pair_named
from kvplan.plan.types import Group, Nest, PageRange, Plan, Read, Worker

PREFILL, DECODE = 0, 1


def check_stages(plan: Plan, number: int, read: Read) -> None:
    """Check both stages of a read of decode worker `number`. Raises ProofFailed (P020, P021, P022)."""
    if not read.table.unpack and not read.table.pack:
        return
    pair, table = pair_named(plan, read.groups), read.placed
    groups = group_named(plan.prefill, pair.prefill), group_named(plan.decode, pair.decode)
    workers = plan.prefill.workers[read.worker], plan.decode.workers[number]
    for side, ranges in ((PREFILL, table.unpack), (DECODE, table.pack)):
        if ranges:
            rows = _rows(groups[side], pair.rows)
            images = _images(workers[side], ranges)
            for nest in (*table.per_page, *table.per_token):
                _check_inside(nest, side, rows, images)
            if side == DECODE:
                _check_filled(table.per_page or table.per_token, rows, ranges)


def _rows(group: Group, tokens: int) -> int:
    return group.kernel // tokens if group.store == "tokens" else 1


def _images(worker: Worker, ranges: tuple[PageRange, ...]) -> dict[int, list[tuple[int, int]]]:
    """Return first byte and end of every image row by plane, in order. Raises ProofFailed (P020) for invalid ranges."""
    pages = [plane.page for plane in planes(worker)]
    found: dict[int, list[tuple[int, int]]] = {}
    for part in ranges:
        for turn in range(part.planes):
            found.setdefault(part.plane + turn * part.step, []).append((part.offset, part.offset + part.bytes))
    for plane, rows in found.items():
        rows.sort()
        if not 0 <= plane < len(pages) or rows[0][0] < 0 or rows[-1][1] > pages[plane]:
            raise ProofFailed(
                "P020", f"a stage has bytes {rows[0][0]} to {rows[-1][1]} of plane {plane}, not of a page"
            )
        if any(start >= end for start, end in rows) or any(end > start for (_, end), (start, _) in pairwise(rows)):
            raise ProofFailed("P020", f"a stage has bytes of plane {plane} twice, or none")
    return found


def _check_inside(nest: Nest, side: int, rows: int, images: dict[int, list[tuple[int, int]]]) -> None:
    """Check that each plane a nest touches has one image row around all bytes that the nest touches there."""
    for plane, starts in grouped(_corners(nest, side, rows)).items():
        low, high = min(starts), max(starts) + nest.bytes
        if not any(start <= low and high <= end for start, end in images.get(plane, [])):
            what = f"bytes {low} to {high} of plane {plane}"
            raise ProofFailed(
                "P021", f"a nest of {'+'.join(nest.tensors)} touches {what}, no range of the stage has them"
            )


def _corners(nest: Nest, side: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield places of spans: in every plane the first and the last turn of each loop and row of tokens."""
    at = (nest.prefill, nest.decode)[side]
    steps = [(loop.count, (loop.prefill, loop.decode)[side]) for loop in nest.loops]
    turns = [range(count) if step[0] else sorted({0, count - 1}) for count, step in steps]
    for point in product(*turns):
        plane = at[0] + sum(turn * step[0] for turn, (_, step) in zip(point, steps, strict=True))
        byte = at[1] + sum(turn * step[1] for turn, (_, step) in zip(point, steps, strict=True))
        for row in {0, rows - 1} if nest.token_step else {0}:
            hops = sum(row // hop[0] * hop[1 + side] for hop in nest.hops)
            yield plane, byte + row * (nest.token_step[side] if nest.token_step else 0) + hops


def _check_filled(nests: tuple[Nest, ...], rows: int, ranges: tuple[PageRange, ...]) -> None:
    moved = sum(n.bytes * prod(loop.count for loop in n.loops) * (rows if n.token_step else 1) for n in nests)
    size = sum(part.bytes * part.planes for part in ranges)
    if moved != size:
        raise ProofFailed("P022", f"{moved} of {size} bytes of a packed page are written: the rest would be rubbish")
