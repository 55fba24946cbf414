"""kvplan audit: compare another connector's list of copies with the two layouts. docs/audit.md has its rules."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from kvplan.cli import complete
from kvplan.cli import errors as failure
from kvplan.cli.options import format_option, layouts_option, side_options
from kvplan.cli.terminal import say
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.audit.audit import audit
from kvplan.compiler.check.copy_list import parse_text as parse_copies
from kvplan.compiler.check.request import parse_text
from kvplan.dsl.named import library


class InputFile(click.File):
    """A file to read; `-` is stdin, which a command can read only once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and ctx is not None:
            if ctx.meta.get("stdin"):
                self.fail("stdin cannot be read twice; name a file", param, ctx)
            ctx.meta["stdin"] = True
        return super().convert(value, param, ctx)


JSON_FILE = InputFile("r", encoding="utf-8", errors="replace")


@click.command("audit")
@click.argument("model", metavar="MODEL", shell_complete=complete.models)
@side_options(required=True, pool=True)
@click.option("--request", type=JSON_FILE, required=True, help="A JSON file, as for trace; - is stdin.")
@click.option("--copies", type=JSON_FILE, required=True, help="Copies as trace lists them in JSON; - is stdin.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=5, show_default=True,
    help="Ways of being wrong to tell of, besides the first wrong byte.",
)  # fmt: skip
@layouts_option
@format_option("text", "json")
def command(
    model: str, prefill: str, decode: str, request: TextIO, copies: TextIO, limit: int, layouts: tuple[Path, ...],
    form: str,
) -> None:  # fmt: skip
    """Judge copies that another connector makes.

    Executed on labels, with no plan: every needed byte has to be written once, from its own coordinate.
    """
    found, name = library(model, layouts)
    here, there = (bind(found, found.model(name), text) for text in (prefill, decode))
    said = audit(here, there, parse_text(request.read()), parse_copies(copies.read()), limit)
    click.echo(json.dumps({**dataclasses.asdict(said), "right": said.right})) if form == "json" else say(said.text())
    sys.exit(0 if said.right else failure.WRONG)
