"""The facts of a configuration: its keys, wherever they stand in it, and the words that config files make of them."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.answers import ForeignValues, with_words

LAYER = "layer"


def nested(config: Mapping[str, object], inside: tuple[str, ...]) -> tuple[Mapping[str, object], ...]:
    """The configuration and the mappings in it, each in the one before, in which the numbers may stand."""
    chain = [config]
    while inner := next((m for key in inside if isinstance(m := chain[-1].get(key), Mapping)), None):
        chain.append(inner)
    return tuple(chain)


def facts_of(chain: tuple[Mapping[str, object], ...], words: tuple[tuple[str, Expr], ...]) -> ForeignValues:
    """Every key of the chain, inner ones first unless they are null, and the words that are not about one layer."""
    values: dict[str, object] = {}
    for mapping in chain:
        values |= {key: value for key, value in mapping.items() if value is not None}
    return with_words(ForeignValues(values), words)


def layered(words: tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    """The words that are about one layer, by themselves or by others."""
    about, layered_words = {LAYER}, []
    for name, expr in words:
        if names(expr) & about:
            about.add(name)
            layered_words.append((name, expr))
        else:
            about.discard(name)
    return tuple(layered_words)


def at_layer(facts: ForeignValues, layer: int, about: tuple[tuple[str, Expr], ...]) -> ForeignValues:
    """The facts of one layer: its number, and the words that are about it."""
    here = ForeignValues({**facts.values, LAYER: layer}, {**facts.origins, LAYER: ()}, facts.doubts)
    return with_words(here, about)
