"""kvplan keys: a key pair for an engine."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("keys")
@click.argument("name", metavar="NAME")
@click.option(
    "-o", "--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Where to."
)
def command(name: str, out: Path) -> None:
    """Make a key pair for an engine.

    NAME.key is for its peers, NAME.key_secret for the engine alone. Neither is ever overwritten.
    """
    from kvplan.runtime.control.keys import Keys

    for path in Keys.make(out, name):
        click.echo(f"wrote {path}")
