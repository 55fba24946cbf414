"""The command `kvplan`. Each verb has a file, which is loaded when the verb is used."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import click

from kvplan import __version__
from kvplan.cli import terminal
from kvplan.cli.errors import guarded, interruptible, usage_as_json
from kvplan.cli.options import SIDE_HELP

# The first sentence of each command's own help, by group, so that `kvplan --help` loads no command.
GROUPS = {
    "Describe": {
        "list": "List known models, kinds, engines and machines.",
        "new": "Write a model file from a checkpoint's config.json.",
        "check": "Report every error in layout files.",
        "from-cache": "Compare a dump of a running engine's caches with a layout.",
        "schema": "Print JSON Schemas of layout files, for editors.",
    },
    "Compile": {
        "compile": "Compile plans, one for each pair of sides.",
        "explain": "Explain a model, pair, engine, kind, plan or error code.",
        "show": "Show a plan, or what all pairs of sides cost, as a page.",
        "matrix": "Compare all pairs of sides by what they cost.",
        "advise": "Say which engine settings would move caches faster.",
    },
    "Review": {
        "diff": "Compare plans by what they do.",
        "trace": "List every copy of one request.",
        "simulate": "Run plans on numpy buffers, compare each byte.",
        "audit": "Judge copies that another connector makes.",
    },
    "Run": {
        "demo": "Move a request between processes, and check every byte.",
        "doctor": "Say whether two engines fit together, and print what to run.",
        "keys": "Make a key pair, for an engine or for signing plans.",
        "route": "Serve one OpenAI API with a prefill and a decode engine.",
    },
    "Measure": {
        "bench": "Measure what kvplan promises about speed, as ratios.",
        "calibrate": "Measure what transfers and copies cost on this machine.",
    },
    "About kvplan": {
        "help": "Show the help of kvplan or of a command.",
        "version": "Show the version.",
    },
    "Fleets and stores": {
        "push": "Put plans at a URL, with a signed index.",
        "pull": "Fetch plans from a URL, if a trusted key signed them for it.",
        "fleet": "Show which engines run, and who has plans for whom.",
        "simulate-fleet": "Say which pair of sides serves some traffic best.",
        "store": "Look at stored caches, check them, and remove what is old.",
    },
}
VERBS = {verb: text for group in GROUPS.values() for verb, text in group.items()}


class Verbs(click.Group):
    """Commands by name, in groups, in the order in which a user meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"kvplan.cli.commands.{cmd_name.replace('-', '_')}").command
        if not command.epilog and any(param.metavar == "SIDE" for param in command.params):
            command.epilog = SIDE_HELP
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + _suggestion(args[0]), ctx) from None
        if command is not None and not ctx.resilient_parsing:
            _check_once(click.Context(command, parent=ctx, info_name=name), rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, VERBS))
        room = formatter.width - widest - 6
        for title, verbs in GROUPS.items():
            stubs = {verb.ljust(widest): click.Command(verb, help=text) for verb, text in verbs.items()}
            with formatter.section(title):
                formatter.write_dl([(verb, stub.get_short_help_str(room)) for verb, stub in stubs.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        words = tuple(args)
        with interruptible(), usage_as_json(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta["words"] = words
        context.color = terminal.wanted(context.params.get("color"))
        return context

    def invoke(self, ctx: click.Context) -> object:
        with interruptible(), usage_as_json(ctx.meta["words"]):
            return guarded(ctx, super().invoke)


def _suggestion(verb: str) -> str:
    from kvplan.dsl.text.diagnostics import close

    near = close(verb, VERBS)
    return f" Did you mean {near[0]!r}?" if near else ""


SIDES = ("--prefill", "--decode")


def _check_once(ctx: click.Context, args: list[str]) -> None:
    """Refuse a second value for an option that takes one: click would silently take the last."""
    _, _, given = ctx.command.make_parser(ctx).parse_args(list(args))
    for param, count in Counter(given).items():
        if count > 1 and isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count):
            name, of_side = param.opts[0], param.opts[0] in SIDES
            several = "; several sides are one text, such as tp=2/4,block=16/32" if of_side else ""
            raise click.BadOptionUsage(name, f"{name} is given {count} times: give it once{several}", ctx)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kvplan")
@click.option("--color/--no-color", default=None, help="Colours in text; by default on a terminal without NO_COLOR.")
def main(color: bool | None) -> None:
    """Compile cache layouts into reviewable transfer plans.

    \b
    Begin with one of
      kvplan list                                        what is shipped
      kvplan doctor config.json --tp 4 --peer-tp 2       two engines of a model
      kvplan explain MODEL --prefill tp=4 --decode tp=2  what moves, and why
      kvplan new config.json -o my-model.yaml            a model of your own

    A SIDE is written tp=4,order=nhd; tp=1/2/4 stands for three sides. `kvplan explain CODE` has the text of an error,
    https://github.com/kvplan/kvplan the documentation.

    Exit codes: 0 done; 1 stale, different or wrong; 2 bad input; 3 refused; 4 in doubt (doctor); 70 a fault;
    130 interrupted; 141 nobody read the output to its end.
    """
