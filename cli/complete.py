"""Shell completion of commands, models, engines, kinds, and of a side's keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.engine import Engine


def verbs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Sequence[CompletionItem]:
    """The names of commands."""
    root = ctx.find_root()
    return root.command.shell_complete(root, incomplete)


def models(ctx: click.Context, param: click.Parameter, incomplete: str) -> Sequence[CompletionItem]:
    """The names of models; files if no name has this prefix."""
    return _begun(_library(ctx).models, incomplete) or [CompletionItem(incomplete, type="file")]


def anything(ctx: click.Context, param: click.Parameter, incomplete: str) -> Sequence[CompletionItem]:
    """The names of models, engines and kinds; files if no name has this prefix."""
    library = _library(ctx)
    names = (*library.models, *library.engines, *library.kinds)
    return _begun(names, incomplete) or [CompletionItem(incomplete, type="file")]


def side(ctx: click.Context, param: click.Parameter, incomplete: str) -> Sequence[CompletionItem]:
    """The next keys of a side, or the values of the key being written, each after the text that is there already."""
    done, comma, item = incomplete.rpartition(",")
    key, equals, value = item.partition("=")
    engine = _engine(_library(ctx), done)
    if not equals:
        given = {word.partition("=")[0] for word in done.split(",")}
        return _begun((f"{done}{comma}{name}=" for name in _keys(engine) if name not in given), incomplete)
    choices = _library(ctx).engines if key == "engine" else engine.options[key].values if key in engine.options else ()
    return _begun((f"{done}{comma}{key}={choice}" for choice in choices), f"{done}{comma}{key}={value}")


def compile_option(ctx: click.Context, param: click.Parameter, incomplete: str) -> Sequence[CompletionItem]:
    """The values of a compile option."""
    from kvplan.compiler.api import OPTIONS

    return _begun(OPTIONS.get(str(param.name)) or _library(ctx).machines, incomplete)


def _begun(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _library(ctx: click.Context) -> Library:
    from kvplan.dsl.library import load

    return load((), ctx.params.get("layouts") or ())


def _engine(library: Library, done: str) -> Engine:
    named = [word.partition("=")[2] for word in done.split(",") if word.startswith("engine=")]
    known = [name for name in named if name in library.engines]
    return library.engine(known[0] if known else library.default_engine)


def _keys(engine: Engine) -> tuple[str, ...]:
    from kvplan.compiler.side.keys import OTHER_KEYS

    return tuple(dict.fromkeys((*engine.mesh.workers, *engine.mesh.derived, *engine.options, *OTHER_KEYS)))
