"""kvplan list: models, kinds and engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from kvplan.cli.options import format_option, layouts_option
from kvplan.dsl.library import Library, load
from kvplan.dsl.model import Engine, Model
from kvplan.dsl.text.diagnostics import DslError

# A name, what it is called, and what is noted of it.
Entry = tuple[str, str, Sequence[str]]


@click.command("list")
@click.argument("words", metavar="[WORD…]", nargs=-1)
@layouts_option
@format_option("text", "json")
def command(words: tuple[str, ...], layouts: tuple[Path, ...], form: str) -> None:
    """List known models, kinds and engines.

    With WORDs only those that have all of them in a name or a title, upper or lower case, or in the name of a kind
    that a model has.
    """
    library = load((), layouts)
    models = [name for name in library.models if _meant(words, name, _about(library.models[name]))]
    kinds = [name for name in library.kinds if _meant(words, name, library.kinds[name].title)]
    engines = [name for name in library.engines if _meant(words, name, library.engines[name].title)]
    if form == "json":
        click.echo(json.dumps(_answer(library, models, kinds, engines), indent=2))
        return
    sections: dict[str, list[Entry]] = {
        "models": [(name, library.models[name].title, _noted(library.models[name])) for name in models],
        "kinds": [(name, library.kinds[name].title, []) for name in kinds],
        "engines": [(name, _engine(library, name), []) for name in engines],
    }
    shown = [_section(heading, entries) for heading, entries in sections.items() if entries or not words]
    click.echo("\n\n".join(shown) or f"nothing has {' and '.join(words)} in its name, title or kind")


def _meant(words: Sequence[str], name: str, about: str) -> bool:
    """Whether all words are in what is said of something."""
    said = f"{name} {about}".casefold()
    return all(word.casefold() in said for word in words)


def _about(model: Model) -> str:
    """The title and the kinds of a model."""
    return " ".join([model.title, *(cache.kind for cache in model.caches.values())])


def _answer(library: Library, models: Sequence[str], kinds: Sequence[str], engines: Sequence[str]) -> dict[str, object]:
    every = [library.models[name] for name in models]
    return {
        "models": {model.name: model.title for model in every},
        "kinds": {name: library.kinds[name].title for name in kinds},
        "engines": {name: _described(library.engines[name]) for name in engines},
        "notes": {m.name: [{"about": about, "note": note} for about, note in m.notes] for m in every if m.notes},
    }


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
        "title": f"{engine.title} {engine.versions}".strip(),
        "mesh": mesh,
        "options": options,
        "derived": [*engine.derive],
    }


def _engine(library: Library, name: str) -> str:
    """An engine's title, the releases that its file describes, and whether sides that name no engine run it."""
    engine = library.engines[name]
    versions = f" ({engine.versions})" if engine.versions else ""
    return f"{engine.title}{versions}{', the default' if name == _default(library) else ''}"


def _default(library: Library) -> str | None:
    """The engine of sides that name none; None where the files do not say just one, which sides will be told."""
    try:
        return library.default_engine
    except DslError:
        return None


def _noted(model: Model) -> list[str]:
    """What a model's file notes, unconfirmed numbers above all."""
    return [": ".join(filter(None, note)) for note in model.notes]


def _section(heading: str, entries: Sequence[Entry]) -> str:
    """A heading and its entries, (name, title, notes); the notes stand below."""
    width = max((len(name) for name, _, _ in entries), default=0)
    lines = [heading]
    for name, title, notes in entries:
        lines.append(f"  {name:{width}}  {title}")
        lines += [f"  {'':{width}}    {note}" for note in notes]
    return "\n".join(lines)
