"""kvplan pull: fetch plans from a URL."""

from __future__ import annotations

from pathlib import Path

import click

from kvplan.cli.options import SIGNED_FOR


@click.command("pull")
@click.argument("url", metavar="URL")
@click.option("-o", "--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), default=Path("plans"))
@click.option(
    "--key",
    "keys",
    metavar="PATH",
    type=click.Path(path_type=Path),
    required=True,
    multiple=True,
    help="NAME.sign.pub of who may sign, or a folder of such; again for more.",
)
@SIGNED_FOR
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=60.0, help="For all of it; 60.")
def command(url: str, out: Path, keys: tuple[Path, ...], seconds: float, signed_for: str | None) -> None:
    """Fetch plans from a URL, if a trusted key signed them for it.

    Plans that are there already are not fetched again. All plans are fetched, or none. An index older than the last one
    that was pulled is refused.
    """
    from kvplan.registry.exchange import pull
    from kvplan.registry.signing import TrustedKeys

    done = pull(url, out, TrustedKeys.load(*keys), seconds, signed_for)
    click.echo(f"pulled {len(done.copied)} of {len(done.plans)} plans, index {done.serial}, into {out}")
