"""kvplan new: a model file from a checkpoint's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from kvplan.cli.files import write
from kvplan.cli.options import format_option, layouts_option
from kvplan.dsl.configs.families import nested, reading_of, spoken
from kvplan.dsl.configs.naming import free_name, last, name_of
from kvplan.dsl.configs.recognise import recognise
from kvplan.dsl.configs.same_model import parsed, twins
from kvplan.dsl.configs.write_model import ModelHead, doubts, model_text
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import Library, load
from kvplan.dsl.model import ConfigRules
from kvplan.dsl.rules.answers import ForeignValues
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, listed
from kvplan.dsl.text.source import SourceSpan, shown

DASH, STDIN = Path("-"), "<stdin>"


@dataclass(frozen=True, slots=True)
class NewModel:
    """A new model: its name, the text of its file, what is not sure, and the models that store the same."""

    name: str
    text: str
    notes: tuple[str, ...]
    same: tuple[str, ...]


@click.command("new")
@click.argument("config", metavar="CONFIG.JSON", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path), help="The file to write, NAME.yaml.")
@layouts_option
@format_option("text", "json")
def command(config: Path, out: Path | None, layouts: tuple[Path, ...], form: str) -> None:
    """Write a model file from a checkpoint's config.json; - is stdin.

    Without -o its text goes to stdout. What is not sure is said on stderr, and in notes of the file.
    """
    new = made(load((), layouts), config, out)
    if out:
        write(out.parent, {out.name: new.text}, [out.name])
    if form == "json":
        written = str(out) if out else None
        answer = {"model": new.name, "same_as": new.same, "written": written, "notes": new.notes, "text": new.text}
        click.echo(json.dumps(answer, indent=2))
        return
    if not out:
        click.echo(new.text, nl=False)
    click.echo("\n".join([*([f"wrote {out}"] if out else []), *_told(new)]), err=True)


def made(library: Library, path: Path, out: Path | None) -> NewModel:
    """The model that the configuration at `path` describes, to be written to `out`. Raises DslError (F…)."""
    place = SourceSpan(STDIN if path == DASH else shown(path), 1, 1, 1)
    return described(library, _read(path, place), place, out)


def described(library: Library, config: Mapping[str, object], place: SourceSpan, out: Path | None) -> NewModel:
    """The model that a configuration describes, which stands at `place`. Raises DslError (F…)."""
    reading, model = reading_of(library, config)
    found = recognise(config, reading, library.kinds, place, model)
    head = _head(library, found.facts, reading, config, out)
    text = model_text(head, found, {name: kind.params for name, kind in library.kinds.items()})
    same = sorted(twins(library, parsed(library, text, head.name, place)), key=lambda name: name != model)
    return NewModel(head.name, text, tuple(doubts(found)), tuple(same))


def _read(path: Path, place: SourceSpan) -> Mapping[str, object]:
    help = "give the path of a checkpoint's config.json, or - for stdin"
    try:
        with click.open_file(str(path), "rb") as file:
            return parse_foreign(file.read(), place.path)
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise DslError(Diagnostic("F001", f"the file cannot be read: {reason}", place, (), help)) from None


def _head(
    library: Library, facts: ForeignValues, reading: ConfigRules, config: Mapping[str, object], out: Path | None
) -> ModelHead:
    chain = nested(config, reading.inside)
    match = {key: next((words for m in chain if (words := spoken(m.get(key)))), ()) for key in reading.match}
    title, called = (last(facts.values.get(word)) for word in ("title", "name"))
    name = name_of(library, out) if out else free_name(library, called)
    return ModelHead(name, title or name, match)


def _told(new: NewModel) -> list[str]:
    known = f"this stores the same as {listed(new.same, 'and')}" if new.same else ""
    try_it = f": kvplan compile {new.same[0]} --prefill SIDE --decode SIDE" if new.same else ""
    notes = [f"  {note}" for note in new.notes]
    unsure = [f"{len(notes)} not sure:", *notes] if notes else ["nothing in doubt"]
    return [*([known + try_it] if new.same else []), *unsure]
