"""The facts of a configuration: its keys, wherever they stand in it, and the words that config files make of them."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.foreign import UnusableValue
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.rules.answers import Answer, ForeignValues, ask

LAYER = "layer"


def nested(config: Mapping[str, object], inside: tuple[str, ...]) -> tuple[Mapping[str, object], ...]:
    """The configuration and the mappings in it, each in the one before, in which the numbers may stand."""
    chain = [config]
    while found := next((m for key in inside if isinstance(m := chain[-1].get(key), Mapping)), None):
        chain.append(found)
    return tuple(chain)


def facts_of(chain: tuple[Mapping[str, object], ...], words: tuple[tuple[str, Expr], ...]) -> ForeignValues:
    """Every key of the chain, inner ones first unless they are null, and the words that are not about one layer."""
    values: dict[str, object] = {}
    for mapping in chain:
        values |= {key: value for key, value in mapping.items() if value is not None}
    facts = ForeignValues(values)
    for name, expr in words:
        facts = _with(facts, name, ask(expr, facts))
    return facts


def layered(words: tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    """The words that are about one layer, by themselves or by others."""
    about, found = {LAYER}, []
    for name, expr in words:
        if names(expr) & about:
            about.add(name)
            found.append((name, expr))
        else:
            about.discard(name)
    return tuple(found)


def _with(facts: ForeignValues, name: str, answer: Answer) -> ForeignValues:
    """`facts` with a word more; one that is there and cannot be worked out says so where it is asked for."""
    origins = {**facts.origins, name: answer.sources}
    if answer.value is None and answer.absent:
        return ForeignValues(facts.values, origins if name not in facts.values else facts.origins, facts.doubts)
    value = _unusable(facts, name, answer.doubt) if answer.value is None else answer.value
    doubts = {**facts.doubts, name: answer.doubt} if answer.doubt else facts.doubts
    return ForeignValues({**facts.values, name: value}, origins, doubts)


def _unusable(facts: ForeignValues, name: str, doubt: str) -> UnusableValue:
    """A word that cannot be worked out; where that is another word's fault, only that one's name is said."""
    known = any(
        isinstance(value, UnusableValue) and value.named and value.reason == doubt for value in facts.values.values()
    )
    return UnusableValue("T001", doubt if known else f"{name}: {doubt}", named=True)


def at_layer(facts: ForeignValues, layer: int, about: tuple[tuple[str, Expr], ...]) -> ForeignValues:
    """The facts of one layer: its number, and the words that are about it."""
    here = ForeignValues({**facts.values, LAYER: layer}, {**facts.origins, LAYER: ()}, facts.doubts)
    for name, expr in about:
        here = _with(here, name, ask(expr, here))
    return here
