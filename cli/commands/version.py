"""kvplan version: the same output as `kvplan --version`."""

from __future__ import annotations

import click

from kvplan import __version__


@click.command("version")
def command() -> None:
    """Show the version."""
    click.echo(f"kvplan, version {__version__}")
