"""The command `kvplan`: one file per verb, loaded when it is asked for."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

import click

from kvplan.cli.errors import guarded, usage_as_json

VERBS = (
    "check", "compile", "explain", "diff", "trace", "simulate", "audit", "matrix", "list", "new", "from-cache",
    "schema", "keys", "demo", "bench",
)  # fmt: skip


class Verbs(click.Group):
    """Commands by name; the order of help is the order in which a user meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"kvplan.cli.commands.{cmd_name.replace('-', '_')}").command
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        words = tuple(args)
        with usage_as_json(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta["words"] = words
        return context

    def invoke(self, ctx: click.Context) -> object:
        with usage_as_json(ctx.meta["words"]):
            return guarded(ctx, super().invoke)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("kvplan"), prog_name="kvplan")
def main() -> None:
    """Compile cache layouts into reviewable transfer plans.

    A SIDE is written tp=4,order=nhd; tp=1/2/4 stands for three sides.

    \b
    Exit codes: 0 done; 1 stale, different or wrong; 2 bad input; 3 refused.
    """
