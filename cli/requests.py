"""The request that `trace` and `simulate` follow: from a JSON file, or generated for some tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TextIO, TypeVar, cast

import click

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.request import check, parse_text
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.plan.request import Request

F = TypeVar("F", bound=Callable[..., Any])
# More tokens than any context has.
MOST_TOKENS = 1 << 24
TOKENS_HELP = """The tokens needed, with block ids that --seed draws. By default a range that begins and ends inside
blocks: long enough that windows and chunks of up to 512 tokens leave some of it out, and across the end of a longer
chunk. A longer window covers all of it: simulate then names a range that is long enough."""


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """The request on a command line: its JSON, or its tokens [first, end), or neither."""

    text: str | None
    tokens: tuple[int, int] | None
    seed: int

    def of(self, prefill: BoundSide, decode: BoundSide) -> Request:
        """The request for two sides. Raises BadInput (Q…) if its tables do not fit them."""
        request = parse_text(self.text) if self.text is not None else self._sample(prefill, decode)
        check(request, prefill, decode)
        return request

    def _sample(self, prefill: BoundSide, decode: BoundSide) -> Request:
        wanted = self.tokens or sample_range(prefill, decode)
        if wanted[1] > MOST_TOKENS:
            raise click.UsageError(f"a sample to token {wanted[1]:,} is more than is simulated ({MOST_TOKENS:,})")
        return sample_request(prefill, decode, wanted, self.seed)


def request_options(function: F) -> F:
    """Add `--tokens`, `--seed` and `--request`, passed on as one AskedRequest `wanted`."""

    @click.option("--tokens", metavar="FIRST:END", help=TOKENS_HELP)
    @click.option("--seed", default=0, show_default=True, help="Draws the block ids.")
    @click.option(
        "--request", type=click.File("r", encoding="utf-8", errors="replace"),
        help="A JSON file with tokens and block ids (docs/trace.md); - is stdin.",
    )  # fmt: skip
    @wraps(function)
    def wrapped(*, tokens: str | None, seed: int, request: TextIO | None, **rest: Any) -> Any:
        if request and tokens:
            raise click.UsageError("a request has tokens of its own: give --request or --tokens")
        text = request.read() if request else None
        return function(wanted=AskedRequest(text, _range(tokens) if tokens else None, seed), **rest)

    return cast(F, wrapped)


def _range(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        message = f"{text!r} is not FIRST:END with FIRST before END, for example 0:5000"
        raise click.BadParameter(message, param_hint="--tokens")
    return int(first), int(end)
