"""kvplan new: a model file from a checkpoint's configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kvplan.cli.options import format_option, layouts_option
from kvplan.dsl.configs.new_model import NewModel, described, made
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, listed
from kvplan.dsl.text.source import SourceSpan
from kvplan.plan.files.folder import write

DASH, STDIN = Path("-"), "<stdin>"


@click.command("new")
@click.argument("config", metavar="CONFIG.JSON|CHECKPOINT", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path), help="The file to write, NAME.yaml.")
@click.option(
    "--accept-doubts", is_flag=True, help="Write it even where a number is in doubt; the file keeps the doubts."
)
@layouts_option
@format_option("text", "json")
def command(config: Path, out: Path | None, accept_doubts: bool, layouts: tuple[Path, ...], form: str) -> None:
    """Write a model file from a checkpoint's config.json.

    CONFIG is the file, the checkpoint's folder, or - for stdin. Without -o the text goes to stdout. What is not sure is
    said on stderr, and kept in the file. Where a number may be wrong that is an error, unless --accept-doubts is given.
    """
    library = load((), layouts)
    new = _from_stdin(library, out) if config == DASH else made(library, config, out)
    if new.doubts and not accept_doubts:
        help = "compare with what an engine allocates, and give --accept-doubts"
        raise DslError(Diagnostic("F008", "a number is in doubt", SourceSpan(str(config), 1, 1, 1), new.doubts, help))
    if out:
        write(out.parent, {out.name: new.text}, [out.name])
    if form == "json":
        written = str(out) if out else None
        notes = {"notes": new.notes, "doubts": new.doubts}
        answer = {"model": new.name, "same_as": new.same, "written": written, **notes, "text": new.text}
        click.echo(json.dumps(answer, indent=2))
        return
    if not out:
        click.echo(new.text, nl=False)
    click.echo("\n".join([*([f"wrote {out}"] if out else []), *_told(new)]), err=True)


def _from_stdin(library: Library, out: Path | None) -> NewModel:
    place = SourceSpan(STDIN, 1, 1, 1)
    return described(library, parse_foreign(sys.stdin.buffer.read(), STDIN), place, out)


def _told(new: NewModel) -> list[str]:
    known = f"this stores the same as {listed(new.same, 'and')}" if new.same else ""
    try_it = f": kvplan compile {new.same[0]} --prefill SIDE --decode SIDE" if new.same else ""
    notes = [f"  {note}" for note in new.notes]
    unsure = [f"{len(notes)} not sure:", *notes] if notes else ["nothing in doubt"]
    return [*([known + try_it] if new.same else []), *unsure]
