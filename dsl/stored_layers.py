"""Sentences on the layers of a model and what they store, and warnings about layers that store nothing or too much."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kvplan.dsl.files.static_check import settled_value
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.text.diagnostics import Diagnostic, layer_ranges, listed, ranges
from kvplan.dsl.text.grouped import grouped

DECLARE = (
    "correct `layers` of a cache; layers that read another layer's cache belong in no_cache: {shared: …}, those that"
    " keep nothing in no_cache: {mlp: …}"
)
APART = "correct `layers` of one of them"


def stored_layers(model: Model, caches: Collection[str] | None = None) -> str:
    """`52 (6 store attention, 23 store states, 23 store nothing)`; only for `caches` if they are given.

    Draft layers count if one of these caches has draft layers; otherwise the engine does not draft.
    """
    counted = [cache for name, cache in model.caches.items() if caches is None or name in caches]
    drafts = caches is None or any(layer >= model.layers for cache in counted for layer in cache.layers)
    every = range(model.layers + (model.drafts if drafts else 0))
    bare = set(every).difference(*(cache.layers for cache in counted))
    stored = [f"{_store(len(cache.layers), len(every))} {cache.name}" for cache in counted]
    undeclared = ", not listed in no_cache" if model.undeclared else ""
    stored += [f"{_store(len(bare), len(every))} nothing{undeclared}"] if bare else []
    count = f"{model.layers} and {model.drafts} draft" if len(every) > model.layers else f"{model.layers}"
    return f"{count} ({', '.join(stored)})"


def _store(count: int, every: int) -> str:
    number = "all" if count == every > 1 else f"{count:,}"
    return f"{number} store{'s' if count == 1 else ''}"


def undeclared(model: Model) -> str:
    """The sentence about layers that store nothing and are not declared in no_cache; empty if there are none."""
    if not model.undeclared:
        return ""
    count, every = len(model.undeclared), model.layers + model.drafts
    which = ranges(model.undeclared)
    verb, them = ("stores", "it") if count == 1 else ("store", "them")
    return f"{count} of {every} layers {verb} nothing, and no_cache does not list {them}: {which}"


def bare_warning(model: Model) -> Diagnostic | None:
    """The warning (W004) about undeclared layers without a cache, at the model's first cache."""
    text, caches = undeclared(model), [*model.caches.values()]
    return Diagnostic("W004", text, caches[0].span, (), DECLARE) if text and caches else None


def crowded(model: Model, kinds: Mapping[str, Kind]) -> Iterator[Diagnostic]:
    """Warnings (W005) for layers that have too many caches of the same tokens, at `layers` of the last such cache."""
    for length in dict.fromkeys(kinds[cache.kind].length for cache in model.caches.values()):
        caches = {n: c for n, c in model.caches.items() if kinds[c.kind].length == length and not c.when}
        most = {name: _most(model, kinds[cache.kind], cache) for name, cache in caches.items()}
        every = ((_together(caches, most, layer), layer) for layer in range(model.layers + model.drafts))
        for names, layers in grouped(every).items():
            if len(names) > max((most[name] for name in names), default=0):
                crowded = model.caches[names[-1]]
                place = (crowded.written("layers") or crowded).span
                yield Diagnostic("W005", _crowd(names, layers), place, (), APART)


def _together(caches: Mapping[str, Cache], most: Mapping[str, int], layer: int) -> tuple[str, ...]:
    """The caches of a layer, without those whose kinds do not say how many one layer has."""
    return tuple(name for name, cache in caches.items() if layer in cache.layers and most[name])


def _most(model: Model, kind: Kind, cache: Cache) -> int:
    """The number of such caches that one layer has; 0 if the kind does not say it, or if it depends on a side."""
    value = settled_value(kind.per_layer, kind, cache, model.values) if kind.per_layer else None
    return value if isinstance(value, int) else 0


def _crowd(names: tuple[str, ...], layers: list[int]) -> str:
    verb = "is" if len(layers) == 1 else "are"
    return f"{layer_ranges(layers)} {verb} listed in several caches of the same tokens: {listed(names, 'and')}"
