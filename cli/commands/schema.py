"""kvplan schema: JSON Schemas of layout files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kvplan.cli.options import layouts_option
from kvplan.dsl.json_schema import FILES, schema
from kvplan.dsl.library import load
from kvplan.plan.files.folder import write

# The file for all kinds of layout files is named after the program, the others after their kind.
ALL, SUFFIX = "kvplan", ".schema.json"


def _sort(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The kind of layout file. Raises BadParameter if it is unknown."""
    if value is not None and value not in FILES:
        raise click.BadParameter(f"'{value}' is none of {', '.join(FILES)}", ctx, param)
    return value


@click.command("schema")
@click.argument("sort", metavar="[fleet|kind|engine|model|deployment|machine|config]", required=False, callback=_sort)
@click.option(
    "-o", "--out", metavar="PATH", type=click.Path(path_type=Path), help="FILE.json, or a directory for all schemas."
)
@layouts_option
def command(sort: str | None, out: Path | None, layouts: tuple[Path, ...]) -> None:
    """Print JSON Schemas of layout files, for editors.

    Editors complete and check by them. One schema for all layout files, or one for those of a kind. Without -o it goes
    to stdout.
    """
    library = load((), layouts)
    if out is None or out.suffix == ".json":
        sorts = {out.name if out else "": sort}
    else:
        sorts = {f"{one or ALL}{SUFFIX}": one for one in ([sort] if sort else [None, *FILES])}
    texts = {name: json.dumps(schema(library, one), indent=2, ensure_ascii=False) for name, one in sorts.items()}
    if out is None:
        click.echo(texts[""])
        return
    folder = out.parent if out.suffix == ".json" else out
    write(folder, {name: f"{text}\n" for name, text in texts.items()}, texts)
    for name in texts:
        click.echo(f"wrote {folder / name}")
