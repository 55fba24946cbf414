"""kvplan push: put plans at a URL."""

from __future__ import annotations

from pathlib import Path

import click

from kvplan.cli.options import DIRECTORY, SIGNED_FOR


@click.command("push")
@click.argument("plans", metavar="DIR", type=DIRECTORY)
@click.argument("url", metavar="URL")
@click.option(
    "--key", metavar="FILE", type=click.Path(path_type=Path), required=True, help="NAME.sign, of `keys --signing`."
)
@click.option(
    "--trusted",
    metavar="PATH",
    type=click.Path(path_type=Path),
    multiple=True,
    help="NAME.sign.pub of who signed what is there, where that is another key, or a folder of such; again for more.",
)
@SIGNED_FOR
@click.option("--prune", is_flag=True, help="Leave plans that are there, and not in DIR, out of the index.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=60.0, help="For all of it; 60.")
def command(
    plans: Path, url: str, key: Path, trusted: tuple[Path, ...], prune: bool, seconds: float, signed_for: str | None
) -> None:
    """Put plans at a URL, with a signed index.

    The URL is a folder of whatever fsspec knows: a path, s3://bucket/plans, gs://…. Plans that are there already stay,
    so that engines of before and after a change find theirs. One may push at a time. The index is signed for this URL.
    """
    from kvplan.registry.exchange import push
    from kvplan.registry.signing import SigningKey, TrustedKeys

    others = TrustedKeys.load(*trusted) if trusted else None
    done = push(plans, url, SigningKey(key), prune, seconds, others, signed_for)
    click.echo(f"pushed {len(done.copied)} of {len(done.plans)} plans, index {done.serial}")
