"""kvplan check: every error in layout files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kvplan.cli.errors import BAD_INPUT
from kvplan.cli.options import format_option, layouts_option


@click.command("check")
@click.argument("paths", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@layouts_option
@format_option("text", "json", "github")
def command(paths: tuple[Path, ...], layouts: tuple[Path, ...], form: str) -> None:
    """Report every error in layout files.

    A FILE may be a directory, which stands for all layout files in it.
    """
    from kvplan.cli.commands.check_sides import check_deployments
    from kvplan.dsl.library import check
    from kvplan.dsl.text.diagnostics import render

    files = [file for path in paths for file in (sorted(path.rglob("*.yaml")) if path.is_dir() else [path])]
    found = [*check(files, layouts), *check_deployments(files, layouts)]
    if found or form != "text":
        click.echo(render(found, form))
    else:
        click.echo(f"{len(files)} {'file' if len(files) == 1 else 'files'}: no errors")
    sys.exit(BAD_INPUT if found else 0)
