"""kvplan keys: make a key pair, for an engine or for signing plans."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("keys")
@click.argument("name", metavar="NAME")
@click.option(
    "-o", "--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Where to."
)
@click.option("--signing", is_flag=True, help="A pair that signs plans (Ed25519), for push and pull.")
def command(name: str, out: Path, signing: bool) -> None:
    """Make a key pair, for an engine or for signing plans.

    NAME.key is for its peers, NAME.key_secret for the engine alone. With --signing NAME.sign.pub is for those who pull
    plans, NAME.sign for who pushes them. Nothing is ever overwritten.
    """
    from kvplan.registry import signing as signatures
    from kvplan.runtime.control.keys import Keys

    for path in signatures.make(out, name) if signing else Keys.make(out, name):
        click.echo(f"wrote {path}")
