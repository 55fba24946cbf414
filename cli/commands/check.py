"""kvplan check: every error in layout files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import click

from kvplan.cli.errors import BAD_INPUT
from kvplan.cli.options import format_option, layouts_option, tell_skipped
from kvplan.cli.terminal import say
from kvplan.compiler.api import OPTIONS, settled
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import BadInput, CompileError
from kvplan.compiler.options import MACHINE
from kvplan.compiler.side.keys import check_pool
from kvplan.compiler.words import many
from kvplan.deploy.jobs import name_errors, sides_of
from kvplan.deploy.plans import SUFFIX, folder_of, plan_paths
from kvplan.dsl.check import check, doubts, layers_of
from kvplan.dsl.files.deployment import parse_deployment
from kvplan.dsl.files.documents import identify, open_document
from kvplan.dsl.files.folders import folder_files, layout_type
from kvplan.dsl.library import Library, load, load_good
from kvplan.dsl.named import model_files, names_of
from kvplan.dsl.schema.deployment import Deployment, PlanSpec
from kvplan.dsl.schema.fields import guarded
from kvplan.dsl.text.diagnostics import Diagnostic, DslError, Sink, ordered, render
from kvplan.dsl.text.source import SourceSpan

PAIRS = "`kvplan compile --check` says whether each pair can be compiled"


@click.command("check")
@click.argument("paths", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@layouts_option
@format_option("text", "json", "github")
def command(paths: tuple[Path, ...], layouts: tuple[Path, ...], form: str) -> None:
    """Report every error in layout files.

    Doubtful numbers are reported as warnings, and so are layers that store nothing and that no_cache does not list;
    warnings leave the exit code 0. For each model it shows which layers store what. `kvplan doctor CONFIG.JSON --layout
    FILE` compares a model file with its configuration.

    A FILE may be a directory, which stands for all layout files in it: YAML files with the key kvplan. Hidden files and
    other YAML files are skipped, and counted on stderr.
    """
    files = [file for path in paths for file in (_below(path) if path.is_dir() else [_layout(path)])]
    deployments = deployments_in(files, layouts)
    wrong = check_deployments(deployments, files, layouts)
    errors = ordered([*check(files, layouts), *_check_models(files, layouts), *wrong])
    named = list(dict.fromkeys(path for one in deployments for path in _named_beside(files, one)))
    warnings = list(dict.fromkeys([*doubts(files, layouts), *_doubts_of(deployments, files, layouts)]))
    found = [*errors, *warnings]
    if found or form != "text":
        say(render(found, form)) if form == "text" else click.echo(render(found, form))
    if not errors and form == "text":
        say("\n".join(layers_of(files, layouts)))
        say("\n".join(_copies(files)), err=True)
        warned = f", {many(len(warnings), 'warning')}" if warnings else ""
        pairs = f"; {PAIRS}" if deployments else ""
        click.echo(f"{many(len(files) + len(named), 'file')}: no errors{warned}{pairs}")
    sys.exit(BAD_INPUT if errors else 0)


def _below(folder: Path) -> list[Path]:
    """The layout files of a folder. Raises UsageError if it has none: another folder was probably meant."""
    found = folder_files(folder)
    tell_skipped(folder, found)
    if found.layouts:
        return [*found.layouts]
    message = f"no layout file (.yaml or .yml, with the key kvplan) lies in '{folder}'"
    if plan_paths(folder):
        message += f"; {_checked(folder)}"
    raise click.UsageError(message)


def _layout(file: Path) -> Path:
    if file.suffix == SUFFIX:
        raise click.UsageError(f"'{file}' is a plan; {_checked(folder_of(file))}")
    return file


def _checked(folder: Path) -> str:
    return f"`kvplan compile DEPLOYMENT -o {folder} --check` checks plans"


def _check_models(files: Sequence[Path], layouts: Sequence[Path]) -> list[Diagnostic]:
    """The errors in the sides that models among `files` require of engines."""
    library, _ = load_good(files, layouts)
    found: list[Diagnostic] = []
    for model in (model for path in files for model in library.models_of(path)):
        for engine, text in model.sides.items():
            found += _errors_of(partial(bind, library, model, f"engine={engine},{text}"), text.span)
    return list(dict.fromkeys(found))


def check_deployments(
    read: Sequence[Deployment], files: Sequence[Path], layouts: Sequence[Path] = ()
) -> list[Diagnostic]:
    """The errors in the deployments of `files`, and in the models they name, each at the value that it is about."""
    library, _ = load_good(files, layouts)
    found = [error for one in read for error in _errors_in(one, files, layouts)]
    found += name_errors(library, read)
    # A side is bound for every model: equal messages at one place are one mistake.
    once = {(d.code, d.message, d.span): d for d in reversed(found)}
    return list(once.values())


@contextmanager
def faults_in_deployments(files: Sequence[Path], layouts: Sequence[Path] = ()) -> Iterator[None]:
    """Give an error in a deployment its place in the file, as `kvplan check` reports it."""
    try:
        yield
    except (BadInput, DslError) as error:
        codes = {one.code for one in (error.diagnostics if isinstance(error, DslError) else (error,))}
        errors = check_deployments(deployments_in(files, layouts), files, layouts) if files else []
        if codes & {one.code for one in errors}:
            raise DslError(*errors) from None
        raise


def deployments_in(files: Sequence[Path], layouts: Sequence[Path] = ()) -> list[Deployment]:
    """The deployments among files. `kvplan.dsl.library.check` reports files that cannot be opened."""
    library, _ = load_good(files, layouts)
    return [one for path in files if (one := _deployment(library, path))]


def _copies(files: Sequence[Path]) -> list[str]:
    """A note on each file that is a copy of one that kvplan has: an edit would make it a second file of that name."""
    known = {described: {*of.values()} for described, of in load().paths.items()}
    shipped = {path.resolve() for of in known.values() for path in of}
    read = ((path, layout_type(path)) for path in files if path.resolve() not in shipped)
    return [
        f"note: {path} is a copy of kvplan's own file: give its {described} another name before you edit it"
        for path, described in read
        if any(one.read_bytes() == path.read_bytes() for one in known[described])
    ]


def _named_beside(files: Sequence[Path], one: Deployment) -> list[Path]:
    """The files that a deployment names by path, without `files`. A missing one is an error at its place."""
    known = {path.resolve() for path in files}
    return [path for path in dict.fromkeys(model_files(one)) if path.is_file() and path.resolve() not in known]


def _doubts_of(
    deployments: Sequence[Deployment], files: Sequence[Path], layouts: Sequence[Path]
) -> Iterator[Diagnostic]:
    """The warnings about models that deployments name by path, for each with a library of its own."""
    for one in deployments:
        yield from doubts(_named_beside(files, one), layouts)


def _errors_in(one: Deployment, files: Sequence[Path], layouts: Sequence[Path]) -> Iterator[Diagnostic]:
    """The errors of one deployment. It has its own library: another one may use the same names for other files."""
    named = model_files(one)
    # A missing file is reported at the place that names it.
    library, unread = load_good([*files, *(path for path in dict.fromkeys(named) if os.path.isfile(path))], layouts)
    yield from unread
    for spec in one.plans:
        yield from _check(library, spec)


def _deployment(library: Library, path: Path) -> Deployment | None:
    """The deployment in a file, as far as it can be read; None for other types of files."""
    try:
        document = open_document(path)
    except DslError:
        return None
    sink = Sink()
    sort, name = identify(sink, document)
    if sort != "deployment":
        return None
    return parse_deployment(sink, document.root, name, library.models)


def _check(library: Library, spec: PlanSpec) -> Iterator[Diagnostic]:
    for name, value in spec.options.items():
        place = (value if name in (*OPTIONS, MACHINE) else name).span
        # A machine needs a strategy beside it; an error in that is reported at its own place.
        beside = spec.options.get("strategy") if name == MACHINE else None
        given = {name: value} if beside not in OPTIONS["strategy"] else {name: value, "strategy": str(beside)}
        yield from _errors_of(partial(settled, given), place)
        if name == MACHINE:
            yield from _errors_of(partial(library.machine, value), place)
    # An unknown name is reported at its place.
    known = [name for text in spec.models for name in names_of(library, text) if name in library.models]
    sink = Sink()
    models = [model for name in known if (model := guarded(sink, partial(library.model, name)))]
    yield from sink.errors
    for text in (*spec.prefill, *spec.decode):
        yield from _errors_of(partial(check_pool, text), text.span)
        for model, one in product(models, sides_of(text)):
            yield from _errors_of(partial(bind, library, model, one), text.span)


def _errors_of(run: Callable[[], object], place: SourceSpan) -> Iterator[Diagnostic]:
    """The errors that `run` raises, at the place of the value that they are about."""
    try:
        run()
    except CompileError as error:
        yield Diagnostic(error.code, error.message, place, (), error.help)
    except DslError as error:
        yield from (Diagnostic(d.code, d.message, place, d.notes, d.help, d.values) for d in error.diagnostics)
