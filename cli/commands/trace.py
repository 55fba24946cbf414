"""kvplan trace: list every copy of one request. The JSON is a contract: docs/trace.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from kvplan.cli import complete
from kvplan.cli.options import AskedPairs, format_option, layouts_option, pair_options
from kvplan.cli.requests import AskedRequest, request_options
from kvplan.cli.terminal import say
from kvplan.compiler.check.trace import trace
from kvplan.plan.types import Interval


@click.command("trace")
@click.argument("what", metavar="PLAN|MODEL", shell_complete=complete.models)
@pair_options(required=False, pool=True)
@request_options
@layouts_option
@format_option("text", "json")
def command(what: str, asked: AskedPairs, wanted: AskedRequest, form: str) -> None:
    """List every copy of one request.

    Takes a PLAN on disk, or a MODEL with --prefill and --decode. Copies are sorted by destination; neighbouring blocks
    are not merged yet.
    """
    compiled = asked.compiled(what)
    request = wanted.of(compiled.prefill, compiled.decode)
    answer = trace(compiled.plan, compiled.prefill, compiled.decode, request)
    click.echo(json.dumps(answer)) if form == "json" else say(_text(answer, request.tokens))


def _text(answer: Mapping[str, Any], tokens: Interval) -> str:
    copies = answer["copies"]
    first, end = tokens
    lines = [f"tokens {first}:{end}, prefill -> decode, offsets in bytes"]
    lines += [f"{_place(copy['from'])} -> {_place(copy['to'])}: {copy['bytes']:,} B" for copy in copies]
    total = sum(copy["bytes"] for copy in copies)
    return "\n".join([*lines, f"{len(copies):,} copies, {total:,} B"])


def _place(end: Mapping[str, Any]) -> str:
    return f"worker {end['worker']} {end['plane']} +{end['offset']:,}"
