"""Rings: token caches that keep the last tokens in a fixed number of blocks, so that positions start over.
Law: a ring holds all that is needed of it at once, plus a row of several tokens that is not full yet. So no two
tokens that move have the same place.
"""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.compiler.errors import Refused
from kvplan.compiler.side.options import Env, number, override_help
from kvplan.compiler.words import needed
from kvplan.dsl.schema.engine import Engine
from kvplan.plan.needs import room

WRAP = "wrap"


def wrapped(cache: BoundCache, engine: Engine, env: Env) -> int:
    """Return the number of tokens after which a cache's positions start over, 0 for never.
    It comes from the engine's rule `wrap`, without one from the kind's `ring`. Raises Refused (C114).
    """
    if WRAP not in engine.derive:
        return cache.ring
    value = number(env.get(WRAP), 0, f"{WRAP} of {cache.name!r}", "a number of tokens", override_help(WRAP))
    return value if cache.store == "tokens" else 0


def check_rings(word: str, side: BoundSide) -> None:
    """Refuse a side whose rings are not whole blocks (C119), or keep less than their readers need (C120)."""
    for cache in (cache for cache in side.caches if cache.ring):
        if cache.ring % cache.tokens:
            said = f"the ring of {cache.ring} tokens of {cache.name!r} is no whole number of blocks of {cache.tokens}"
            raise Refused("C119", f"{word}{said}", f"give tokens.{cache.name}=… a divisor of {cache.ring}")
        _check_room(word, cache)


def _check_room(word: str, cache: BoundCache) -> None:
    unit = max(tensor.tokens_per_row for tensor in cache.tensors)
    least = room(cache.needs, unit)
    if least is not None and least <= cache.ring and not cache.needs.sink:
        return
    rows = f" in rows of {unit}" if unit > 1 else ""
    said = f"the ring of {cache.name!r} keeps the last {cache.ring:,} tokens{rows}"
    said = f"{word}{said}, its readers need {needed(cache.needs) or 'all tokens'}"
    larger = f"give it a ring of {least:,} tokens or more" if least and not cache.needs.sink else "say which ones"
    raise Refused("C120", said, f"{larger}, or page it without a ring")
