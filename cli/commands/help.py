"""kvplan help: `kvplan help COMMAND` is `kvplan COMMAND --help`."""

from __future__ import annotations

import click

from kvplan.cli import complete


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=complete.verbs)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of kvplan or of a command.

    `kvplan help store ls` shows that of a command within a command.
    """
    root = ctx.find_root()
    root.command.main([*words, "--help"], root.info_name)
