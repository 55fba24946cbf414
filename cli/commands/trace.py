"""kvplan trace: every copy of one request. The JSON is a contract: docs/trace.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

import click

from kvplan.cli import complete
from kvplan.cli.options import AskedPairs, format_option, layouts_option, pair_options
from kvplan.cli.terminal import say
from kvplan.compiler.check.request import parse_text
from kvplan.compiler.check.trace import trace


@click.command("trace")
@click.argument("model", metavar="MODEL", shell_complete=complete.models)
@pair_options(required=True, pool=True)
@click.option(
    "--request", type=click.File("r", encoding="utf-8", errors="replace"), required=True,
    help="A JSON file; - is stdin.",
)  # fmt: skip
@layouts_option
@format_option("text", "json")
def command(model: str, asked: AskedPairs, request: TextIO, form: str) -> None:
    """List every copy of one request.

    Sorted by destination, before neighbouring blocks are merged.
    """
    wanted = parse_text(request.read())
    compiled = asked.compiled(model)
    answer = trace(compiled.plan, compiled.prefill, compiled.decode, wanted)
    click.echo(json.dumps(answer)) if form == "json" else say(_text(answer))


def _text(answer: Mapping[str, Any]) -> str:
    copies = answer["copies"]
    lines = [f"{_place(copy['from'])} -> {_place(copy['to'])}: {copy['bytes']:,} B" for copy in copies]
    total = sum(copy["bytes"] for copy in copies)
    return "\n".join([*lines, f"{len(copies):,} copies, {total:,} B"])


def _place(end: Mapping[str, Any]) -> str:
    return f"worker {end['worker']} {end['plane']} +{end['offset']:,}"
