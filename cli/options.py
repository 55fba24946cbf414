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
    from kvplan.deploy.jobs import PairJob
    from kvplan.dsl.files.folders import FolderFiles
    from kvplan.dsl.library import Library

# The help on sides, shown below that of every command that takes sides.
SIDE_HELP = """\b
A SIDE is keys with values, separated by commas:
  tp=4,pp=2                  the mesh; an axis that is not given is 1
  tp=4,order=nhd,block=32    engine options, or its own flags: block_size=32
  engine=NAME,tp=2           another engine; `kvplan list` shows them
  tp=8,kernel_block=16       a value given that the engine would derive
  layers=31+30  without=a+b  layers of each stage; caches to leave out
  groups=by_cache            a table per cache; share.NAME.AXIS=5+3: shares
  tp=1/2/4,order=nhd/hnd     six sides: every value with every other one
`kvplan explain ENGINE` has the keys of an engine; docs/cli.md has all.
"""
F = TypeVar("F", bound=Callable[..., Any])
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def _remember(ctx: click.Context, param: click.Parameter, value: str) -> str:
    ctx.meta["format"] = value
    return value


def format_option(*forms: str) -> Callable[[F], F]:
    """Add `--format`, by default the first of `forms`; errors are reported in the same format."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        callback=_remember,
        is_eager=True,
        help="Format of the answer and of errors.",
    )


def leave_out(why: str, given: Mapping[str, object]) -> None:
    """Raise UsageError for options without effect: `given` has their values by name, None or empty if not given."""
    words = [f"{name} {value}" for name, value in given.items() if value not in (None, "")]
    if words:
        raise click.UsageError(f"{why}: leave out {' '.join(words)}")


def tell_skipped(folder: Path, found: FolderFiles) -> None:
    """Print on stderr how many files of a folder were not read."""
    if found.skipped:
        click.echo(f"skipped in {folder}: {found.skipped}", err=True)


def _layouts(ctx: click.Context, param: click.Parameter, value: tuple[Path, ...] | Path | None) -> object:
    """The folders as given. Prints on stderr how many of their files are not read."""
    for folder in (value,) if isinstance(value, Path) else value or ():
        from kvplan.dsl.files.folders import folder_files

        tell_skipped(folder, folder_files(folder))
    return value


def _layouts_option(multiple: bool, more: str) -> Callable[[F], F]:
    help = f"A directory with more layout files{more}."
    return click.option("--layouts", type=DIRECTORY, multiple=multiple, callback=_layouts, help=help)


layouts_option = _layouts_option(True, "; may be repeated")
one_layouts_option = _layouts_option(False, "")

SIGNED_FOR = click.option(
    "--signed-for",
    metavar="PLACE",
    help="The place that the index is signed for; the URL itself. Name it to read a mirror, or by another protocol.",
)


def _side(pool: bool, ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The side as given. Raises BadParameter for a side without keys, BadInput for a pool's size unless `pool`."""
    if value is not None and not value.strip(" ,"):
        raise click.BadParameter("a side has at least one key, for example tp=1", ctx, param)
    if value is not None and not pool:
        from kvplan.compiler.side.keys import check_pool

        check_pool(value)
    return value


def side_options(required: bool, pool: bool = False) -> Callable[[F], F]:
    """Add `--prefill SIDE` and `--decode SIDE`; with `pool`, a side may have the key `blocks`, the size of its pool."""

    def add(function: F) -> F:
        side = partial(
            click.option, metavar="SIDE", required=required, shell_complete=complete.side, callback=partial(_side, pool)
        )
        decode = side("--decode", help="The engine that needs the cache.")
        return side("--prefill", help="The engine that has the cache.")(decode(function))

    return add


@dataclass(frozen=True, slots=True)
class AskedPairs:
    """The pairs on a command line: both sides, empty if not given, compile options, and folders of layout files."""

    prefill: str
    decode: str
    options: Mapping[str, str]
    layouts: tuple[Path, ...]

    def given(self) -> dict[str, str]:
        """The sides and options that were given, by name."""
        sides = {"prefill": self.prefill, "decode": self.decode}
        return {name: value for name, value in {**sides, **self.options}.items() if value}

    def leave_out(self, why: str) -> None:
        """Raise UsageError, for the reason `why`, if sides or options were given."""
        leave_out(why, {f"--{name}": value for name, value in self.given().items()})

    def jobs(self, models: Sequence[str]) -> tuple[Library, list[PairJob]]:
        """The layout files, and every pair of the models, given by name or path. Raises DslError, BadInput (S025)."""
        from kvplan.deploy.jobs import of_models

        return of_models(models, self.prefill, self.decode, self.options, self.layouts)

    def compiled(self, what: str) -> Compiled:
        """The compiled pair of a model, given by name or path, or of a plan on disk. Raises DslError, CompileError."""
        from kvplan.compiler.api import compile_pair
        from kvplan.deploy import plans

        if what.endswith(plans.SUFFIX):
            self.leave_out("a plan has its own sides and options")
            return self._compiled_again(what)
        plans.check_one(what)
        found, name = self.library(what)
        if not self.prefill or not self.decode:
            raise click.UsageError("give --prefill SIDE and --decode SIDE, or the path of a plan")
        return compile_pair(found, name, self.prefill, self.decode, self.options)

    def library(self, what: str) -> tuple[Library, str]:
        """The layout files, and the name of a model given by name or path. Raises DslError, BadInput (S021)."""
        from kvplan.deploy import plans
        from kvplan.dsl.named import library
        from kvplan.dsl.text.diagnostics import DslError

        try:
            return library(what, self.layouts)
        except DslError:
            plans.check_one(what)
            raise

    def _compiled_again(self, path: str) -> Compiled:
        """The pair of a plan on disk, compiled again. Raises BadInput (S021) if that gives another plan, DslError."""
        from kvplan.compiler.api import compile_pair
        from kvplan.compiler.errors import BadInput
        from kvplan.deploy import plans

        plans.check_one(path)
        [text] = plans.read(path).values()
        plan = plans.parsed(text, path)
        library, name = self.library(plan.model)
        # Nobody can give the path of the model's file in place of a plan.
        library.model(name, "<plan>")
        found = compile_pair(library, name, plan.prefill.key, plan.decode.key, dict(plan.options))
        if found.plan.digest != plan.digest:
            said = f"{path!r} is not what layout files make of its pair now"
            raise BadInput("S021", said, "compile it again, or give the --layouts that it was compiled with")
        return found


def pair_options(required: bool, pool: bool = False) -> Callable[[F], F]:
    """Add `side_options`, `--elect`, `--strategy` and `--machine`, passed on with `layouts` as AskedPairs `asked`."""
    chosen = partial(click.option, shell_complete=complete.compile_option)

    def add(function: F) -> F:
        @side_options(required, pool)
        @chosen(
            "--elect",
            metavar="one|spread",
            help="If several workers hold the same bytes (replicated heads): read one, or spread layers over them.",
        )
        @chosen("--strategy", metavar="NAME", help="direct; staged with unpack or pack; auto, the cheapest.")
        @chosen("--machine", metavar="NAME", help="With auto: decide by this machine's profile (`kvplan list`).")
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
