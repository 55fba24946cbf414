"""Which layers of a model store what, and which store nothing: sentences, and the warning about undeclared ones."""

from __future__ import annotations

from collections.abc import Collection

from kvplan.dsl.schema.model import Model
from kvplan.dsl.text.diagnostics import Diagnostic, ranges

DECLARE = "correct `layers` of a cache; if these layers have no cache of their own, declare them with `no_cache`"


def stored_layers(model: Model, caches: Collection[str] | None = None) -> str:
    """`52 (6 store attention, 23 store states, 23 store nothing)`; only of `caches` if they are given.

    Draft layers count if one of the caches has any: without it an engine does not draft.
    """
    counted = [cache for name, cache in model.caches.items() if caches is None or name in caches]
    drafts = caches is None or any(layer >= model.layers for cache in counted for layer in cache.layers)
    every = range(model.layers + (model.drafts if drafts else 0))
    bare = set(every).difference(*(cache.layers for cache in counted))
    stored = [f"{_store(len(cache.layers), len(every))} {cache.name}" for cache in counted]
    undeclared = ", which the model file does not declare" if model.undeclared else ""
    stored += [f"{_store(len(bare), len(every))} nothing{undeclared}"] if bare else []
    count = f"{model.layers} and {model.drafts} draft" if len(every) > model.layers else f"{model.layers}"
    return f"{count} ({', '.join(stored)})"


def _store(count: int, every: int) -> str:
    number = "all" if count == every > 1 else f"{count:,}"
    return f"{number} store{'s' if count == 1 else ''}"


def undeclared(model: Model) -> str:
    """The sentence about layers that store nothing although the file does not declare it; empty without any."""
    if not model.undeclared:
        return ""
    count, every = len(model.undeclared), model.layers + model.drafts
    which = ranges(model.undeclared)
    return f"{count} of {every} layers store nothing, and the model file does not declare it: {which}"


def bare_warning(model: Model) -> Diagnostic | None:
    """The warning (W004) about them, at the model's first cache."""
    text, caches = undeclared(model), [*model.caches.values()]
    return Diagnostic("W004", text, caches[0].span, (), DECLARE) if text and caches else None
