"""Report failures: text on stderr or JSON on stdout, and the exit code."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from kvplan.cli.terminal import say

if TYPE_CHECKING:
    from kvplan.dsl.text.source import SourceSpan

WRONG, BAD_INPUT, REFUSED, DOUBTED = 1, 2, 3, 4
# Like shells: 128 plus the number of the signal, SIGINT or SIGPIPE.
INTERRUPTED, UNREAD = 130, 141
# EX_SOFTWARE in BSD's sysexits.h: a fault of kvplan itself.
FAULT = 70


def guarded(ctx: click.Context, run: Callable[[click.Context], object]) -> object:
    """Run a command. An error that kvplan raises on purpose ends with its exit code, any other with FAULT."""
    from kvplan.compiler.errors import BadInput, CompileError
    from kvplan.dsl.text.diagnostics import DslError
    from kvplan.plan.errors import KvplanError

    try:
        return run(ctx)
    except (CompileError, DslError, KvplanError) as error:
        _report(error, ctx.meta.get("format", "text"))
        sys.exit(exit_code(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # The reader left before the end: 0 would claim success.
        sys.exit(UNREAD)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _report(BadInput("S035", place + (error.strerror or str(error))), ctx.meta.get("format", "text"))
        sys.exit(BAD_INPUT)
    except (click.exceptions.Exit, click.Abort, click.ClickException):
        raise
    except Exception:
        # A code that no command returns, so that a pipeline does not take a fault for an answer.
        traceback.print_exc()
        sys.exit(FAULT)


@contextmanager
def interruptible() -> Iterator[None]:
    """End the program without a traceback on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def usage_as_json(words: Sequence[str]) -> Iterator[None]:
    """Report errors in the words of a command line as JSON if they ask for it; otherwise click shows them."""
    try:
        yield
    except click.UsageError as error:
        if "--format=json" not in words and ("--format", "json") not in pairwise(words):
            raise
        path = error.ctx.command_path if error.ctx else "kvplan"
        fields = {"code": "S023", "message": error.format_message(), "help": f"try: {path} --help"}
        click.echo(json.dumps({"error": fields}, indent=2))
        sys.exit(BAD_INPUT)


def exit_code(error: Exception) -> int:
    """The exit code: WRONG for a failed proof, REFUSED for a refused pair, BAD_INPUT for all else."""
    from kvplan.compiler.errors import ProofFailed, Refused

    if isinstance(error, Refused):
        return REFUSED
    return WRONG if isinstance(error, ProofFailed) else BAD_INPUT


def without_plan(refused: Iterable[tuple[object, Exception]]) -> int:
    """The exit code for pairs without a plan, each with its error: the lowest, so that WRONG wins; 0 for no pairs."""
    return min((exit_code(error) for _, error in refused), default=0)


def as_dict(error: Exception) -> dict[str, object]:
    """{"code", "message", "help"}. An error in layout files has those of its first diagnostic, and `diagnostics`."""
    from kvplan.dsl.text.diagnostics import DslError, render

    if isinstance(error, DslError):
        first = error.diagnostics[0]
        every = json.loads(render(error.diagnostics, "json"))
        return {"code": first.code, "message": first.message, "help": first.help or "", "diagnostics": every}
    message = getattr(error, "message", str(error))
    return {"code": getattr(error, "code", ""), "message": message, "help": getattr(error, "help", "")}


def refusal(what: object, error: Exception, place: SourceSpan | None = None) -> str:
    """A refused pair in words, with its place if a file asks for the pair."""
    from kvplan.dsl.text.diagnostics import Diagnostic, as_text

    fields = {name: str(value) for name, value in as_dict(error).items()}
    if place:
        return as_text(Diagnostic(fields["code"], f"refused {what}: {fields['message']}", place, (), fields["help"]))
    help = f"\n   = {fields['help']}" if fields["help"] else ""
    return f"refused {what}\n   error[{fields['code']}]: {fields['message']}{help}"


def _report(error: Exception, form: str) -> None:
    from kvplan.dsl.text.diagnostics import DslError, render

    if form == "json":
        click.echo(json.dumps({"error": as_dict(error)}, indent=2))
        return
    fields = as_dict(error)
    if isinstance(error, DslError) and error.diagnostics[0].span.path != "<argument>":
        text = render(error.diagnostics, "github" if form == "github" else "text")
        click.echo(text, err=True) if form == "github" else say(text, err=True)
        return
    say(f"error[{fields['code']}]: {fields['message']}", err=True)
    if fields["help"]:
        say(f"   = {fields['help']}", err=True)
