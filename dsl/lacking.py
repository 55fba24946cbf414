"""Warnings about words that a model does not give, and that rules for its caches read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import VARIANT, Cache, Model
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.text.diagnostics import Diagnostic, listed


def lacking_words(model: Model, kinds: Mapping[str, Kind], engines: Sequence[Engine]) -> Iterator[Diagnostic]:
    """Warnings (W008) about words that the model lacks, and that rules of its kinds, or of engines for them, read."""
    for word in (word for word in WORDS if word not in model.words):
        caches = [name for name, cache in model.caches.items() if word in _read(cache, kinds[cache.kind], engines)]
        if caches:
            text = f"the model lacks '{word}', which rules about {listed(caches, 'and')} read: {VARIANT.key(word).doc}"
            yield Diagnostic("W008", text, model.span, (), f"add {word}: …")


def _read(cache: Cache, kind: Kind, engines: Sequence[Engine]) -> frozenset[str]:
    """The names that a kind's doubts read, and engines' rules that store something else instead."""
    doubts = (doubt.when.names for doubt in kind.doubts)
    instead = (rule.read for engine in engines for rule in engine.instead.get(cache.kind, ()))
    return frozenset[str]().union(*doubts, *instead) - kind.params.keys()
