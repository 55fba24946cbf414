"""kvplan new: a model file from a checkpoint's configuration."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from kvplan.cli.options import format_option, layouts_option
from kvplan.cli.terminal import say
from kvplan.cli.transformers_config import completed
from kvplan.compiler.words import columns
from kvplan.dsl.configs.architectures import RIGHT, Architecture
from kvplan.dsl.configs.new_model import NewModel, described, read_config
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, listed
from kvplan.dsl.text.source import SourceSpan
from kvplan.plan.files.folder import write

DASH, STDIN = Path("-"), "<stdin>"
WRITE = "to write it with its doubts: --accept-doubts"


@click.command("new")
@click.argument("config", metavar="CONFIG.JSON|CHECKPOINT", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path), help="The file to write, NAME.yaml.")
@click.option(
    "--accept-doubts", is_flag=True, help="Write the layout although it is in doubt; the file keeps the doubts."
)
@click.option(
    "--transformers",
    is_flag=True,
    help="Load it with the installed transformers library, which adds defaults and computed values.",
)
@click.option("--copy", is_flag=True, help="Write it even if kvplan has a layout for this checkpoint.")
@layouts_option
@format_option("text", "json")
def command(
    config: Path,
    out: Path | None,
    accept_doubts: bool,
    transformers: bool,
    copy: bool,
    layouts: tuple[Path, ...],
    form: str,
) -> None:
    """Write a model file from a checkpoint's config.json.

    CONFIG is the file, the checkpoint's folder, or - for stdin. If kvplan has a layout for the checkpoint, the command
    names the model and writes nothing, unless --copy is given. Without -o the text goes to stdout. Doubts and remarks
    go to stderr, and the file keeps them. A layout in doubt is an error, unless --accept-doubts is given.
    """
    library = load((), layouts)
    found, place = _from_stdin() if config == DASH else read_config(config)
    found, remark = completed(found, place) if transformers else (found, "")
    new = described(library, found, place, out, remark)
    wanted = copy or not new.known
    if wanted and new.doubts and not accept_doubts:
        place = SourceSpan(str(config), 1, 1, 1)
        raise DslError(Diagnostic("F008", "nothing is written: the layout is in doubt", place, new.doubts, WRITE))
    written = out if wanted else None
    if written:
        write(written.parent, {written.name: new.text}, [written.name])
    if form == "json":
        click.echo(json.dumps(_plain(new, written), indent=2))
        return
    if wanted and not out:
        click.echo(new.text, nl=False)
    head = _same(library, new, layouts) if wanted else _known(library, new, config, out, layouts)
    say("\n".join([*head, *([f"wrote {written}"] if written else []), *_unsure(new, written), *_tested(new)]), err=True)


def _from_stdin() -> tuple[Mapping[str, object], SourceSpan]:
    return parse_foreign(sys.stdin.buffer.read(), STDIN), SourceSpan(STDIN, 1, 1, 1)


def _plain(new: NewModel, written: Path | None) -> dict[str, object]:
    known = {"model": new.name, "known": new.known or None, "same_as": new.same}
    return {**known, "written": str(written) if written else None,
            "notes": new.notes, "doubts": new.doubts, "architectures": [asdict(row) for row in new.tested],
            "text": new.text}  # fmt: skip


def _known(library: Library, new: NewModel, config: Path, out: Path | None, layouts: Sequence[Path]) -> list[str]:
    """The lines for a known model: its name, that nothing was written, and what to do next."""
    copy = new.command(str(config), *layouts, out=out)
    rows = [("compile it:", _compile(library, new.known, layouts)), ("write a copy:", copy)]
    return [f"{_named(library, new)} Nothing is written.", *(f"  {line}" for line in columns(("", ""), rows)[1:])]


def _same(library: Library, new: NewModel, layouts: Sequence[Path]) -> list[str]:
    if new.known or not new.same:
        return [_named(library, new)] if new.known else []
    return [f"this stores the same as {listed(new.same, 'and')}: {_compile(library, new.same[0], layouts)}"]


def _named(library: Library, new: NewModel) -> str:
    others = [name for name in new.same if name != new.known]
    also = f" {listed(others, 'and')} {'store' if len(others) > 1 else 'stores'} the same." if others else ""
    where = "comes with kvplan" if library.shipped("model", new.known) else f"is {library.paths['model'][new.known]}"
    return f"This is {new.known}; its layout {where}.{also}"


def _tested(new: NewModel) -> list[str]:
    """Lines on other layouts of this architecture, wrong ones first; and what to do, unless they were right."""
    # A row without dumps is left out if another has some, or if the layout comes with kvplan.
    rows = [row for row in new.tested if row.dumps] or ([] if new.known else new.tested)
    right = [row for row in rows if row.verdict == RIGHT]
    others = sorted((row for row in rows if row.verdict != RIGHT), key=lambda row: not row.wrong)
    lines = [f"other {row.name} configurations on {row.engine}: {row.verdict} ({row.evidence})" for row in others]
    # If this layout is in doubt, readers would take the agreement of others for a proof.
    lines += _agreeing([] if new.doubts else right)
    lines += [] if rows or new.known or new.doubts else ["no engine was asked for the caches of this architecture"]
    settled = not new.doubts and not others and (right or new.known)
    return [*lines, *([] if settled else ["compare the layout with your engine: kvplan from-cache DUMP.json"])]


def _agreeing(rows: list[Architecture]) -> list[str]:
    names = listed(list(dict.fromkeys(row.name for row in rows)), "and")
    head = (
        f"layouts that `kvplan new` wrote for other {names} configurations agree with engines; yours was not compared:"
    )
    several = len({row.name for row in rows}) > 1
    each = [f"  {f'{row.name}, ' if several else ''}{row.engine}: {row.evidence}" for row in rows]
    return [head, *each] if rows else []


def _compile(library: Library, model: str, layouts: Sequence[Path]) -> str:
    own = () if library.shipped("model", model) else layouts
    more = "".join(f" --layouts {shlex.quote(str(path))}" for path in own)
    return f"kvplan compile {model} --prefill SIDE --decode SIDE{more}"


def _unsure(new: NewModel, written: Path | None) -> list[str]:
    """The accepted doubts, and what to do about them; then remarks."""
    correct = [f"correct {written} by the model's own code, then remove the settled doubts: docs/new-model.md"]
    noted = [note for note in new.notes if note not in new.doubts]
    parts = (("in doubt:", new.doubts), ("remarks:", noted))
    lines = [line for head, notes in parts if notes for line in (head, *(f"  {note}" for note in notes))]
    return [*lines, *(correct if new.doubts and written else [])]
