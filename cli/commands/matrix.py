"""kvplan matrix: the cost of every pair of sides of a model, or why it is refused.

The text is a table, prefill sides down, decode sides across; or a row for each pair if that is too wide.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase

import click
from rich.table import Table

from kvplan.cli import complete
from kvplan.cli.errors import WRONG
from kvplan.cli.options import AskedPairs, format_option, layouts_option, pair_options
from kvplan.cli.progress import watched
from kvplan.cli.terminal import console, say, width
from kvplan.compiler.api import settled
from kvplan.compiler.cost.cost import TOKENS
from kvplan.compiler.explain.matrix import MatrixCell, PairCost, RefusalReason, matrix
from kvplan.compiler.options import DIRECT
from kvplan.compiler.side.text import sides
from kvplan.dsl.named import library

COLUMNS = ("model", "prefill", "decode", "descriptors", "bytes", "shortest_span", "refused", "reason", "help")
Labels = Mapping[RefusalReason, str]
LEGEND = (
    "descriptors: what NIXL posts in the worst case (no adjacent blocks); bytes: what is written;",
    "shortest: the shortest span, contiguous on both sides, before adjoining spans become one descriptor",
)
STAGED = "a read through a stage posts ranges of pages, fewer and longer than its spans, which are then copied"


@click.command("matrix")
@click.argument("model", shell_complete=complete.models)
@pair_options(required=True)
@layouts_option
@format_option("text", "json", "csv")
def command(model: str, asked: AskedPairs, form: str) -> None:
    """Compare all pairs of sides by what they cost.

    A row is a side of --prefill, a column one of --decode, as in --prefill tp=1/2/4 --decode tp=1/2. A cell has the
    figures of one request of 1024 tokens: all caches, states included, and all decode workers together.

    \b
      descriptors  what NIXL posts in the worst case (no adjacent blocks)
      bytes        what is written
      shortest     the shortest span, contiguous on both sides

    A refused pair has the code of its refusal, with a letter if one code has several reasons; the reasons are below.
    The exit code is 0 even if pairs are refused, and 1 if a proof fails, which is a fault of kvplan.
    """
    found, name = library(model, asked.layouts)
    cells = matrix(found, name, sides(asked.prefill), sides(asked.decode), asked.options, watched)
    staged = settled(asked.options)["strategy"] != DIRECT
    if form == "json":
        click.echo(json.dumps(answer(name, asked.options, cells), indent=2))
    else:
        click.echo(_csv(name, cells), nl=False) if form == "csv" else say(text(name, cells, staged))
    sys.exit(WRONG if any(reason.fault for reason in refusals(cells)) else 0)


def answer(model: str, options: Mapping[str, str], cells: tuple[MatrixCell, ...]) -> dict[str, object]:
    return {
        "model": model,
        "options": settled(options),
        "tokens": TOKENS,
        "cells": [{"prefill": cell.prefill, "decode": cell.decode, **_plain(cell)} for cell in cells],
        "refusals": [
            {**dataclasses.asdict(reason), "pairs": [[cell.prefill, cell.decode] for cell in met]}
            for reason, met in refusals(cells).items()
        ],
    }


def refusals(cells: tuple[MatrixCell, ...]) -> dict[RefusalReason, list[MatrixCell]]:
    """Every reason once, in order of first use, with the refused cells."""
    found: dict[RefusalReason, list[MatrixCell]] = {}
    for cell in cells:
        if isinstance(cell.outcome, RefusalReason):
            found.setdefault(cell.outcome, []).append(cell)
    return found


def _plain(cell: MatrixCell) -> dict[str, object]:
    if isinstance(cell.outcome, RefusalReason):
        return {"refused": cell.outcome.code}
    return dataclasses.asdict(cell.outcome)


def _csv(model: str, cells: tuple[MatrixCell, ...]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        reason, help = (getattr(cell.outcome, name, "") for name in ("message", "help"))
        known = {"model": model, "prefill": cell.prefill, "decode": cell.decode, "reason": reason, "help": help}
        writer.writerow({**known, **_plain(cell)})
    return out.getvalue()


def text(model: str, cells: tuple[MatrixCell, ...], staged: bool = False) -> str:
    """The title, the items that all sides share, the table with a legend, and every reason for a refusal once."""
    texts = tuple(dict.fromkeys(cell.prefill for cell in cells)), tuple(dict.fromkeys(cell.decode for cell in cells))
    named, notes = zip(*(_named(*side) for side in zip(("prefill", "decode"), texts, strict=True)), strict=True)
    title = f"{model}: one request of {TOKENS:,} tokens, all decode workers together"
    labels = _labels(cells)
    lines = [title, *(note for note in notes if note), "", *_table(cells, labels, *named)]
    moved = any(isinstance(cell.outcome, PairCost) for cell in cells)
    lines += ["", *LEGEND, *([STAGED] if staged else [])] if moved else []
    return "\n".join([*lines, *_refusals(labels)])


def _labels(cells: tuple[MatrixCell, ...]) -> dict[RefusalReason, str]:
    """The code of every reason, in order of first use; `C110a`, `C110b` if a code has several."""
    alike: dict[str, list[RefusalReason]] = {}
    for reason in refusals(cells):
        alike.setdefault(reason.code, []).append(reason)
    return {r: r.code + (_letter(alike[r.code].index(r)) if len(alike[r.code]) > 1 else "") for r in refusals(cells)}


def _letter(number: int) -> str:
    """a to z, then aa and so on."""
    again, last = divmod(number, len(ascii_lowercase))
    return (_letter(again - 1) if again else "") + ascii_lowercase[last]


def _named(which: str, sides: tuple[str, ...]) -> tuple[dict[str, str], str]:
    """The name of each side in the table, without the items that all share, and a line with the shared items."""
    items = [text.split(",") for text in sides]
    shared = [item for item in items[0] if len(sides) > 1 and all(item in other for other in items)]
    names = {text: ",".join(item for item in text.split(",") if item not in shared) or "defaults" for text in sides}
    return names, f"every {which} side: {','.join(shared)}" if shared else ""


def _table(cells: Sequence[MatrixCell], labels: Labels, prefills: dict[str, str], decodes: dict[str, str]) -> list[str]:
    grid = _grid({(cell.prefill, cell.decode): cell for cell in cells}, prefills, decodes, labels)
    return grid if max(map(len, grid)) <= width() else _list(cells, prefills, decodes, labels)


def _grid(
    cells: dict[tuple[str, str], MatrixCell], prefills: dict[str, str], decodes: dict[str, str], labels: Labels
) -> list[str]:
    rows = []
    for prefill, name in prefills.items():
        row = [cells[prefill, decode].outcome for decode in decodes]
        units = "refused" if all(isinstance(found, RefusalReason) for found in row) else "descriptors\nbytes\nshortest"
        rows.append((name, units, *("\n".join(_words(found, labels)) for found in row)))
    return _lines(("prefill \\ decode", "", *decodes.values()), rows, 2, apart=1)


def _list(cells: Iterable[MatrixCell], prefills: dict[str, str], decodes: dict[str, str], labels: Labels) -> list[str]:
    rows = [(prefills[cell.prefill], decodes[cell.decode], *_words(cell.outcome, labels)) for cell in cells]
    return _lines(("prefill", "decode", "descriptors", "bytes", "shortest"), rows, 2)


def _words(found: PairCost | RefusalReason, labels: Labels) -> tuple[str, ...]:
    if isinstance(found, RefusalReason):
        return (labels[found],)
    return f"{found.descriptors:,}", size(found.bytes), size(found.shortest_span)


def size(count: int) -> str:
    """`512 B`, `64 KiB`, `42.1 MiB`: one decimal, none if it is zero."""
    power = min(max(count.bit_length() - 1, 0) // 10, 4)
    return f"{count / 1024**power:,.1f}".removesuffix(".0") + f" {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]], words: int, apart: int = 0) -> list[str]:
    """A table of any width: the first `words` columns flush left, the others right, `apart` lines between rows."""
    table = Table(box=None, padding=(0, 2, apart, 0), pad_edge=False, header_style="none")
    for index, name in enumerate(head):
        table.add_column(name, justify="left" if index < words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    console(file=out, width=10_000, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().rstrip().splitlines()]


def _refusals(labels: Labels) -> list[str]:
    lines = []
    for reason, label in labels.items():
        lines += ["", f"{label}: {reason.message}", *([f"   = {reason.help}"] if reason.help else [])]
    return lines
