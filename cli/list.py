"""kvplan list: models, kinds and engines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvplan.cli.options import format_option, layouts_option

if TYPE_CHECKING:
    from kvplan.dsl.model import Engine


@click.command("list")
@layouts_option
@format_option("text", "json")
def command(layouts: tuple[Path, ...], form: str) -> None:
    """List known models, kinds and engines."""
    from kvplan.dsl.library import load

    library = load((), layouts)
    sections: dict[str, Mapping[str, str]] = {
        "models": {name: library.models[name].title for name in library.models},
        "kinds": {name: library.kinds[name].title for name in library.kinds},
        "engines": {
            name: _engine(library.engines[name].title, library.engines[name].versions) for name in library.engines
        },
    }
    notes = {name: library.models[name].notes for name in library.models if library.models[name].notes}
    if form == "json":
        engines = {name: _described(library.engines[name]) for name in library.engines}
        said = {name: [{"about": about, "note": note} for about, note in found] for name, found in notes.items()}
        click.echo(json.dumps({**sections, "engines": engines, "notes": said}, indent=2))
        return
    click.echo("\n\n".join(_section(name, entries, notes) for name, entries in sections.items()))


def _described(engine: Engine) -> dict[str, object]:
    """An engine with all keys that a side of it may have."""
    options = {
        name: {
            "type": option.type,
            "default": option.default.text if option.default else None,
            "values": list(option.values),
            "aliases": dict(option.aliases),
            "doc": option.doc,
        }
        for name, option in engine.options.items()
    }
    mesh = [*engine.mesh.workers, *engine.mesh.derived]
    return {
        "title": _engine(engine.title, engine.versions),
        "mesh": mesh,
        "options": options,
        "derived": [*engine.derive],
    }


def _engine(title: str, versions: str) -> str:
    return f"{title} {versions}".strip()


def _section(name: str, entries: Mapping[str, str], notes: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """A heading and its entries; what a model's file notes, unconfirmed numbers above all, stands below its model."""
    width = max((len(entry) for entry in entries), default=0)
    lines = [name]
    for entry, title in entries.items():
        lines.append(f"  {entry:{width}}  {title}")
        if name == "models":
            lines += [f"  {'':{width}}    {': '.join(filter(None, note))}" for note in notes.get(entry, ())]
    return "\n".join(lines)
