"""Sentences on the layers of a model and what they store, and warnings about layers that store nothing or too much."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kvplan.dsl.files.static_check import holds, settled_value
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.schema.names import DRAFT_TOKENS
from kvplan.dsl.text.diagnostics import Diagnostic, layer_ranges, listed, ranges
from kvplan.dsl.text.grouped import grouped

DECLARE = (
    "correct `layers` of a cache; layers that read another layer's cache belong in no_cache: {shared: …}, those that"
    " keep nothing in no_cache: {mlp: …}"
)
ADD_DRAFT = "add a cache with `layers: drafts`, or take out `drafts`"
IF_DRAFTED = f"write when: {DRAFT_TOKENS} > 0"
ADD_DRAFTED = f"add to the condition: {DRAFT_TOKENS} > 0"
ALWAYS = "{}; a draft layer belongs into a cache with `layers: drafts`, and `drafts` counts it"
TAKE_OUT, LEAVE_REST = "take out the condition", f"take {DRAFT_TOKENS} out of the condition, and leave the rest"
SPLIT = f"give the draft a cache of its own with `layers: drafts` and `when: {DRAFT_TOKENS} > 0`"
FROM_ONE = f"layers count from 0: subtract 1 from each number if you counted from 1; if not, {SPLIT}"
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


def layer_warnings(model: Model, kinds: Mapping[str, Kind]) -> Iterator[Diagnostic]:
    """Warnings about layers that store nothing (W004) or too much (W005), and conditions that fit no draft (W006)."""
    yield from _bare(model)
    yield from _crowded(model, kinds)
    yield from _drafted(model)


def _bare(model: Model) -> Iterator[Diagnostic]:
    """Warnings (W004) about layers without a cache that no_cache does not list, at the key that counts them."""
    own = [layer for layer in model.undeclared if layer < model.layers]
    drafts = [layer for layer in model.undeclared if layer >= model.layers]
    if own:
        them = "it" if len(own) == 1 else "them"
        text = f"{_nothing(own, model.layers, 'layers')}, and no_cache does not list {them}: {ranges(own)}"
        yield Diagnostic("W004", text, (model.written("layers") or model).span, (), DECLARE)
    if drafts:
        text = f"{_nothing(drafts, model.drafts, 'draft layers')}: {ranges(drafts)}"
        yield Diagnostic("W004", text, (model.written("drafts") or model).span, (), ADD_DRAFT)


def _nothing(layers: Sequence[int], every: int, what: str) -> str:
    return f"{len(layers)} of {every} {what} {'stores' if len(layers) == 1 else 'store'} nothing"


def _drafted(model: Model) -> Iterator[Diagnostic]:
    """Warnings (W006) for draft layers that sides store without drafting, and own layers that some do not store."""
    for name, cache in model.caches.items():
        slip, fix = _slip_and_fix(model, cache)
        if slip:
            condition = None if fix in (SPLIT, FROM_ONE) else cache.when
            place = condition.tree.span if condition else (cache.written("layers") or cache).span
            yield Diagnostic("W006", f"cache '{name}' {slip}", place, (), fix)


def _slip_and_fix(model: Model, cache: Cache) -> tuple[str, str]:
    """The fault of a cache's layers and condition, and what to do about it; both empty if there is none."""
    own = [layer for layer in cache.layers if layer < model.layers]
    drafts = [layer for layer in cache.layers if layer >= model.layers]
    if own and drafts:
        fix = SPLIT if 0 in own else FROM_ONE
        return f"has {layer_ranges(own)} of the model, and draft {layer_ranges(drafts)}", fix
    if drafts:
        slip, more = _slip(cache.when), cache.when and DRAFT_TOKENS not in cache.when.names
        return slip and f"of draft layers {slip}", ADD_DRAFTED if more else IF_DRAFTED
    if cache.when and DRAFT_TOKENS in cache.when.names:
        fix = ALWAYS.format(LEAVE_REST if len(cache.when.names) > 1 else TAKE_OUT)
        return f"has `when: {cache.when.text}`, but sides store layers of the model whatever they draft", fix
    return "", ""


def _slip(when: Expr | None) -> str:
    """The fault of a draft's condition; empty if it has none, or if it depends on other options beside the drafts'."""
    if not when:
        return "has no `when`: sides that do not draft store it, too"
    if DRAFT_TOKENS not in when.names and when.names:
        return f"has `when: {when.text}`: sides that do not draft may store it, too"
    if holds(when, {DRAFT_TOKENS: 0}):
        return f"has `when: {when.text}`: sides that do not draft store it, too"
    if holds(when, {DRAFT_TOKENS: 1}) is False:
        return f"has `when: {when.text}`: sides that draft one token do not store it"
    return ""


def _crowded(model: Model, kinds: Mapping[str, Kind]) -> Iterator[Diagnostic]:
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
