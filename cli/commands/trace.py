"""kvplan trace: every copy of one request. The JSON is a contract: docs/trace.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import click

from kvplan.cli import complete
from kvplan.cli.options import compile_options, format_option, layouts_option, library, side_options
from kvplan.compiler.api import compile_pair
from kvplan.compiler.check.request import parse_text
from kvplan.compiler.check.trace import trace


@click.command("trace")
@click.argument("model", metavar="MODEL", shell_complete=complete.models)
@side_options(required=True, pool=True)
@compile_options
@click.option(
    "--request", type=click.File("r", encoding="utf-8", errors="replace"), required=True,
    help="A JSON file; - is stdin.",
)  # fmt: skip
@layouts_option
@format_option("text", "json")
def command(
    model: str, prefill: str, decode: str, options: Mapping[str, str], request: TextIO, layouts: tuple[Path, ...],
    form: str,
) -> None:  # fmt: skip
    """List every copy of one request.

    Sorted by destination, before neighbouring blocks are merged.
    """
    asked = parse_text(request.read())
    found, name = library(model, layouts)
    compiled = compile_pair(found, name, prefill, decode, options)
    answer = trace(compiled.plan, compiled.prefill, compiled.decode, asked)
    click.echo(json.dumps(answer) if form == "json" else _text(answer))


def _text(answer: Mapping[str, Any]) -> str:
    copies = answer["copies"]
    lines = [f"{_place(copy['from'])} -> {_place(copy['to'])}: {copy['bytes']:,} B" for copy in copies]
    total = sum(copy["bytes"] for copy in copies)
    return "\n".join([*lines, f"{len(copies):,} copies, {total:,} B"])


def _place(end: Mapping[str, Any]) -> str:
    return f"worker {end['worker']} {end['plane']} +{end['offset']:,}"
