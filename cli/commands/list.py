"""kvplan list: models, kinds, engines and machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from kvplan.cli.options import format_option, layouts_option
from kvplan.cli.terminal import say
from kvplan.dsl.configs.architectures import Architecture, architectures
from kvplan.dsl.files.heads import FileHead
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.diagnostics import DslError

# A name, its title, and its notes.
Entry = tuple[str, str, Sequence[str]]


@click.command("list")
@click.argument("words", metavar="[WORD…]", nargs=-1)
@click.option(
    "--architectures", "architecture", is_flag=True, help="List what engines serve, and whether `new` is right."
)
@layouts_option
@format_option("text", "json")
def command(words: tuple[str, ...], architecture: bool, layouts: tuple[Path, ...], form: str) -> None:
    """List known models, kinds, engines and machines.

    With WORDs only those that have all of them in a name or a title, upper or lower case, or in the name of a kind
    that a model has. With --architectures, list the architectures that engines serve: whether the layouts that `new`
    writes are as an engine's own code has the caches. WORDs are their names, or words that all are in a row.
    """
    if architecture:
        _list_architectures(words, form)
        return
    library = load((), layouts)
    models, kinds, engines, machines = (
        [head for head in library.heads(file_type) if _has_words(words, head.name, head.title, *head.kinds)]
        for file_type in ("model", "kind", "engine", "machine")
    )
    # One's own models are few among the shipped ones.
    models = sorted(models, key=lambda model: library.shipped("model", model.name))
    if form == "json":
        click.echo(json.dumps(_answer(library, models, kinds, engines, machines), indent=2))
        return
    # A model's notes stand below it, unconfirmed numbers first.
    sections: dict[str, list[Entry]] = {
        "models": [
            (model.name, model.title, [": ".join(filter(None, note)) for note in model.notes]) for model in models
        ],
        "kinds": [(kind.name, kind.title, []) for kind in kinds],
        "engines": [(engine.name, _engine(library, engine), []) for engine in engines],
        "machines": [(machine.name, machine.title, [library.machine(machine.name).says]) for machine in machines],
    }
    shown = [_section(heading, entries) for heading, entries in sections.items() if entries or not words]
    say("\n\n".join(shown) or f"nothing has {' and '.join(words)} in its name, title or kind")


def _list_architectures(words: Sequence[str], form: str) -> None:
    names = {word.casefold() for word in words}
    rows = [row for row in architectures() if row.name.casefold() in names or _about(words, row)]
    if form == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    from kvplan.compiler.words import columns

    if not rows:
        say(f"no architecture that engines serve has {' and '.join(words)} in its name, verdict, kinds or layouts")
        return
    cells = [(r.name, r.engine, r.verdict, r.evidence, ", ".join(r.kinds), ", ".join(r.models)) for r in rows]
    say("\n".join(columns(("architecture", "engine", "verdict", "evidence", "kinds", "layouts"), cells)))


def _about(words: Sequence[str], row: Architecture) -> bool:
    return _has_words(words, row.name, row.engine, row.verdict, *row.kinds, *row.models)


def _has_words(words: Sequence[str], *about: str) -> bool:
    """Whether all words occur in the texts `about`."""
    return all(word.casefold() in " ".join(about).casefold() for word in words)


def _answer(
    library: Library,
    models: Iterable[FileHead],
    kinds: Iterable[FileHead],
    engines: Iterable[FileHead],
    machines: Iterable[FileHead],
) -> dict[str, object]:
    return {
        "models": {model.name: model.title for model in models},
        "kinds": {kind.name: kind.title for kind in kinds},
        "engines": {engine.name: _described(library.engine(engine.name)) for engine in engines},
        "machines": {machine.name: machine.title for machine in machines},
        "notes": {m.name: [{"about": about, "note": note} for about, note in m.notes] for m in models if m.notes},
    }


def _described(engine: Engine) -> dict[str, object]:
    """An engine with all keys that its sides may have."""
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
    return {
        "title": f"{engine.title} {engine.versions}".strip(),
        "mesh": [*engine.mesh.workers, *engine.mesh.derived],
        "options": options,
        "derived": [*engine.derive],
    }


def _engine(library: Library, engine: FileHead) -> str:
    """An engine's title, the releases that its file describes, and whether sides that name no engine run it."""
    try:
        default = library.default_engine
    except DslError:
        # Not exactly one file is the default: any side without an engine will report that.
        default = None
    versions = f" ({engine.word('versions')})" if engine.word("versions") else ""
    return f"{engine.title}{versions}{', the default' if engine.name == default else ''}"


def _section(heading: str, entries: Sequence[Entry]) -> str:
    """A heading and its entries, (name, title, notes); the notes stand below."""
    width = max((len(name) for name, _, _ in entries), default=0)
    lines = [heading]
    for name, title, notes in entries:
        lines.append(f"  {name:{width}}  {title}")
        lines += [f"  {'':{width}}    {note}" for note in notes]
    return "\n".join(lines)
