"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from kvplan.cli import complete

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.dsl.library import Library

# What help says of sides, below every command that takes some.
SIDE_HELP = """\b
A SIDE is keys with values, separated by commas:
  tp=4,pp=2                  the mesh; an axis that is not given is 1
  tp=4,order=nhd,block=32    options of the engine, or its own flags: block_size=32
  engine=NAME,tp=2           another engine; `kvplan list` has them
  tp=8,kernel_block=16       a derived value in place of what the engine derives
  layers=31+30  without=a+b  layers of each stage, caches that are left out
  groups=by_cache            tables by cache; share.NAME.AXIS=5+3: unlike shares
  tp=1/2/4                   three sides: / is a product, + joins one value
`kvplan explain ENGINE` has the keys of an engine; docs/cli.md has all.
"""
# What other files than layout files are for, by their suffix.
INSTEAD = {
    ".json": "`kvplan new` writes a model file from a checkpoint's config.json, and `kvplan doctor` reads it",
    ".py": "a plan is compiled already: `kvplan explain`, `kvplan show` and `kvplan diff` take one",
}
F = TypeVar("F", bound=Callable[..., Any])
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def _remember(ctx: click.Context, param: click.Parameter, value: str) -> str:
    ctx.meta["format"] = value
    return value


def format_option(*forms: str) -> Callable[[F], F]:
    """`--format`, the first of `forms` by default; errors are reported in the same form."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        callback=_remember,
        is_eager=True,
        help="How to answer, errors included.",
    )


def leave_out(why: str, given: Mapping[str, object]) -> None:
    """Refuse options, by name with what was given or None, that would say nothing. Raises UsageError."""
    words = [f"{name} {value}" for name, value in given.items() if value not in (None, "")]
    if words:
        raise click.UsageError(f"{why}: leave out {' '.join(words)}")


layouts_option = click.option(
    "--layouts", type=DIRECTORY, multiple=True, help="A directory with more layout files; may be given again."
)


def _side(pool: bool, ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A side as it is written. One without any key is as good as missing; `pool`: it may say how large its pool is."""
    if value is not None and not value.strip(" ,"):
        raise click.BadParameter("a side has at least one key, for example tp=1", ctx, param)
    if value is not None and not pool:
        from kvplan.compiler.side.keys import check_pool

        check_pool(value)
    return value


def side_options(required: bool, pool: bool = False) -> Callable[[F], F]:
    """`--prefill SIDE` and `--decode SIDE`; `pool`: whether `blocks`, the size of a pool, says something here."""

    def add(function: F) -> F:
        side = partial(
            click.option, metavar="SIDE", required=required, shell_complete=complete.side, callback=partial(_side, pool)
        )
        decode = side("--decode", help="The engine that needs the cache.")
        return side("--prefill", help="The engine that has the cache.")(decode(function))

    return add


@dataclass(frozen=True, slots=True)
class AskedPairs:
    """What a command line says of pairs: both sides, empty where there is none, options of a compilation, and where
    more layout files are.
    """

    prefill: str
    decode: str
    options: Mapping[str, str]
    layouts: tuple[Path, ...]

    def given(self) -> dict[str, str]:
        """Sides and options as they were given, by name."""
        sides = {"prefill": self.prefill, "decode": self.decode}
        return {name: value for name, value in {**sides, **self.options}.items() if value}

    def leave_out(self, why: str) -> None:
        """Refuse sides and options where they would say nothing. Raises UsageError."""
        leave_out(why, {f"--{name}": value for name, value in self.given().items()})

    def compiled(self, model: str) -> Compiled:
        """The plan of a model, by name or path, for one pair. Raises DslError, CompileError."""
        from kvplan.compiler.api import compile_pair

        found, name = library(model, self.layouts)
        return compile_pair(found, name, self.prefill, self.decode, self.options)


def pair_options(required: bool, pool: bool = False) -> Callable[[F], F]:
    """`side_options`, `--elect`, `--strategy` and `--machine`, checked, with those of `layouts_option`: one AskedPairs
    `asked`.
    """
    chosen = partial(click.option, shell_complete=complete.compile_option)

    def add(function: F) -> F:
        @side_options(required, pool)
        @chosen("--elect", metavar="one|spread", help="Read what several workers hold from one, or layers from each.")
        @chosen("--strategy", metavar="NAME", help="How bytes travel: direct; unpack or pack, staged; auto, cheapest.")
        @chosen("--machine", metavar="NAME", help="With auto: whose profile decides; `kvplan list` has machines.")
        @wraps(function)
        def wrapped(*, prefill: str | None, decode: str | None, layouts: tuple[Path, ...], **rest: Any) -> Any:
            given = {name: rest.pop(name) for name in ("elect", "strategy", "machine")}
            options = {name: value for name, value in given.items() if value is not None}
            if options:
                from kvplan.compiler.api import settled

                settled(options)
            return function(asked=AskedPairs(prefill or "", decode or "", options, layouts), **rest)

        return cast(F, wrapped)

    return add


def library(model: str, layouts: Sequence[Path] = ()) -> tuple[Library, str]:
    """The layout files with `model`'s own, where it is a file, and the model's name. Raises DslError."""
    found, names = libraries([model], layouts)
    only = names[0] if len(names) == 1 else Path(model).stem
    if len(names) > 1:
        found.model(only)
    if is_path(model) and only not in found.models:
        raise _no_model(found, model, only)
    return found, only


def _no_model(found: Library, path: str, name: str) -> Exception:
    """A file describes something else than the one model that is wanted (K005)."""
    from kvplan.dsl.text.diagnostics import Diagnostic, DslError
    from kvplan.dsl.text.source import inline

    file_type = next(file_type for file_type, paths in found.paths.items() if name in paths)
    message = f"{path} is {'an' if file_type[0] in 'aeiou' else 'a'} {file_type}, not a model"
    help = "give a model's name, or the path of its file"
    return DslError(Diagnostic("K005", message, inline(path, "<argument>"), (), help))


def libraries(models: Sequence[str], layouts: Sequence[Path] = ()) -> tuple[Library, list[str]]:
    """The layout files, with those named by path among `models`, and the names of the models.

    A path may also name a kind or an engine, which is loaded and not compiled, or a family, which stands for all its
    models. Raises DslError.
    """
    from kvplan.dsl.library import load

    paths = [_file(model) for model in models if is_path(model)]
    found = load(paths, layouts)
    names = [name for model in models for name in names_of(found, model)]
    for name in names:
        if name not in found.models and Path(name).exists():
            _file(name)
    others = {path.stem for path in paths} - set(found.models)
    return found, [name for name in names if name not in others]


def names_of(library: Library, model: str) -> tuple[str, ...]:
    """A model's name, from itself, or the names of the models in a file, from its path."""
    if not is_path(model):
        return (model,)
    return library.family(Path(model).stem) or (Path(model).stem,)


def is_path(word: str) -> bool:
    """Whether a word on the command line names a file and not what a layout file describes."""
    from kvplan.dsl.files import deployment

    return deployment.is_path(word) or Path(word).suffix in INSTEAD


def is_layout_file(word: str) -> bool:
    """Whether a word on the command line names a file that is there and may be a layout file."""
    return is_path(word) and Path(word).is_file() and Path(word).suffix not in INSTEAD


def _file(word: str) -> Path:
    """A word as the path of a file that is there. Raises DslError (Y012)."""
    from kvplan.dsl.text.diagnostics import Diagnostic, DslError
    from kvplan.dsl.text.source import inline

    if is_layout_file(word):
        return Path(word)
    other = "name a file of it" if Path(word).is_dir() else INSTEAD.get(Path(word).suffix, "")
    message = f"'{word}' is no layout file" if Path(word).exists() else f"no such file '{word}'"
    help = other or "give the path of a model file, FILE.yaml, or a name of `kvplan list`"
    raise DslError(Diagnostic("Y012", message, inline(word, "<argument>"), (), help))
