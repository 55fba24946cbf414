"""`kvplan route`: a small router in front of a prefill and a decode engine, which may be of different kinds."""

from __future__ import annotations

import importlib
from urllib.parse import urlsplit

import click

from kvplan.cli.extras import check_extra
from kvplan.cli.terminal import say

SECONDS = click.FloatRange(min=0, min_open=True)


def _urls(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The URLs of engines. Raises BadParameter."""
    for url in given:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter(f"{url!r} is no URL of an engine, as http://127.0.0.1:8000")
    return given


@click.command("route")
@click.option("--prefill", metavar="URL", multiple=True, required=True, callback=_urls,
              help="The prefill engine; several take turns.")  # fmt: skip
@click.option("--decode", metavar="URL", multiple=True, required=True, callback=_urls,
              help="The decode engine; several take turns.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Where to listen.")
@click.option("--connect", type=SECONDS, default=5.0, show_default=True,
              help="Seconds that a connection to an engine may take.")  # fmt: skip
@click.option("--silence", type=SECONDS, default=600.0, show_default=True,
              help="Seconds that an engine may say nothing, or a client not read.")  # fmt: skip
def command(
    prefill: tuple[str, ...], decode: tuple[str, ...], host: str, port: int, connect: float, silence: float
) -> None:
    """Serve one OpenAI API with a prefill and a decode engine.

    Each is an engine that has a connector of kvplan's, of any kind: the router asks which, and speaks as each engine's
    own routers do. It answers completions, chat completions, models and health, in one piece or in a stream. It is made
    for tests and for small set-ups: it counts no load, and tries nothing twice.
    """
    check_extra("aiohttp", "route")
    # By name: commands may not import `kvplan.integrations`, which is above them.
    app = importlib.import_module("kvplan.integrations.router.app")
    config = app.RouterConfig(prefill, decode, connect, silence)
    line = f"http://{host}:{port}: prefill {' '.join(prefill)}, decode {' '.join(decode)}"
    try:
        app.run(config, host, port, lambda: say(line))
    except OSError as error:
        raise click.UsageError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
