"""kvplan matrix: what every pair of sides of a model costs, or why it is refused."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvplan.cli.options import compile_options, format_option, layouts_option, library, side_options

if TYPE_CHECKING:
    from kvplan.compiler.explain.matrix import MatrixCell, RefusalReason

COLUMNS = ("model", "prefill", "decode", "requests", "bytes", "shortest_span", "refused", "reason", "help")


@click.command("matrix")
@click.argument("model")
@side_options(required=True)
@compile_options
@layouts_option
@format_option("text", "json", "csv")
def command(
    model: str, prefill: str, decode: str, options: Mapping[str, str], layouts: tuple[Path, ...], form: str
) -> None:
    """Compare all pairs of sides by what they cost.

    A row is a side of --prefill, a column one of --decode, as in --prefill tp=1/2/4 --decode tp=1/2. A cell is about
    one request of 1024 tokens from token 0, all caches, states included, of all decode workers together.

    \b
      requests  posted, where no two logical blocks are neighbours
      bytes     written
      shortest  span in bytes, before spans that follow each other are
                joined into one request

    Or the code of the refusal, with a letter where it has several reasons; the reasons stand below. A refused pair is
    an answer: the exit code is 0.
    """
    from kvplan.cli.commands import matrix_text
    from kvplan.compiler.explain.matrix import matrix
    from kvplan.compiler.side.text import sides

    found, name = library(model, layouts)
    cells = matrix(found, name, sides(prefill), sides(decode), options)
    if form == "json":
        click.echo(json.dumps(_answer(name, options, cells), indent=2))
        return
    click.echo(_csv(name, cells) if form == "csv" else matrix_text.text(name, cells), nl=form == "text")


def _answer(model: str, options: Mapping[str, str], cells: tuple[MatrixCell, ...]) -> dict[str, object]:
    from kvplan.compiler.api import settled
    from kvplan.compiler.emit.cost import TOKENS

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
    """Every reason once, in order of first use, with the cells that it refuses."""
    from kvplan.compiler.explain.matrix import RefusalReason

    found: dict[RefusalReason, list[MatrixCell]] = {}
    for cell in cells:
        if isinstance(cell.outcome, RefusalReason):
            found.setdefault(cell.outcome, []).append(cell)
    return found


def _plain(cell: MatrixCell) -> dict[str, object]:
    from kvplan.compiler.explain.matrix import RefusalReason

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
