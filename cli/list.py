"""kvplan list: models, kinds and engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from kvplan.cli.options import format_option, layouts_option


@click.command("list")
@layouts_option
@format_option("text", "json")
def command(layouts: tuple[Path, ...], form: str) -> None:
    """List known models, kinds and engines."""
    from kvplan.dsl.library import load

    library = load((), layouts)
    sections: Mapping[str, Mapping[str, str]] = {
        "models": {name: library.models[name].title for name in sorted(library.models)},
        "kinds": {name: library.kinds[name].title for name in sorted(library.kinds)},
        "engines": {
            name: _engine(library.engines[name].title, library.engines[name].versions)
            for name in sorted(library.engines)
        },
    }
    click.echo(
        json.dumps(sections, indent=2) if form == "json" else "\n\n".join(_section(*item) for item in sections.items())
    )


def _engine(title: str, versions: str) -> str:
    return f"{title} {versions}".strip()


def _section(name: str, entries: Mapping[str, str]) -> str:
    width = max((len(entry) for entry in entries), default=0)
    return "\n".join([name, *(f"  {entry:{width}}  {title}" for entry, title in entries.items())])
