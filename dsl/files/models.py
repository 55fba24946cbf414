"""Model files: which layers have which cache, with which numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvplan.dsl.files.conditions import OptionWords, check_condition
from kvplan.dsl.files.layers import parse_layers
from kvplan.dsl.files.needs import check_tokens, parse_needs
from kvplan.dsl.files.static_check import check_worth
from kvplan.dsl.files.variants import notes
from kvplan.dsl.lang.nodes import Expr, Value
from kvplan.dsl.model import Cache, Kind, Model, Param
from kvplan.dsl.rules.config_rules import parse_own
from kvplan.dsl.schema.fields import check_names, entries, guarded
from kvplan.dsl.schema.model import CACHE, MODEL
from kvplan.dsl.schema.params import check_value, checked
from kvplan.dsl.schema.shapes import EXPRESSION, NameShape
from kvplan.dsl.text.diagnostics import Sink, close, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What the rest of a model's file says: how many layers and draft layers there are, words, names of caches."""

    layers: int
    drafts: int
    values: Mapping[str, Value]
    caches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelReferences:
    """What a model file may refer to: kinds, the names that a kind's expressions may use besides its own, and the
    options of all engines."""

    kinds: Mapping[str, Kind]
    outer: tuple[str, ...]
    option_words: Callable[[], OptionWords] = OptionWords


def parse_model(sink: Sink, root: YamlTable, name: str, span: SourceSpan, known: ModelReferences) -> Model:
    """A model, with every error in the sink."""
    keys, kinds = MODEL.read(sink, root), known.kinds
    # Of a number of drafts that is none it is known that there are some.
    drafts = keys.drafts if keys.drafts is not None else int("drafts" in keys.given)
    values: dict[str, Value | None] = {"dtype": keys.dtype, "query_heads": keys.query_heads}
    around = ModelContext(
        layers=keys.layers or 0,
        drafts=drafts,
        values={word: value for word, value in values.items() if value is not None},
        caches=tuple(cache.text for cache in keys.caches),
    )
    caches = {cache.text: _cache(sink, cache, tree, around, known) for cache, tree in keys.caches.items()}
    return Model(
        name=name,
        title=keys.title,
        doc_ref=keys.doc_ref,
        layers=around.layers,
        values=around.values,
        caches={name: cache for name, cache in caches.items() if cache is not None},
        span=span,
        drafts=drafts,
        notes=tuple(notes(root)),
        config=parse_own(sink, keys.config, name, lambda kind: kinds[kind].params if kind in kinds else None),
    )


def _cache(sink: Sink, name: YamlScalar, tree: Tree, around: ModelContext, known: ModelReferences) -> Cache | None:
    kind = _kind(sink, name, tree, around, known)
    if kind is None:
        return None
    required = [param.name for param in kind.params.values() if param.default is None]
    keys = CACHE.read(sink, tree, f"cache '{name.text}' of kind '{kind.name}'", kind.params, required)
    check_tokens(sink, kind.store, f"kind '{kind.name}'", keys.given)
    needs = parse_needs(sink, keys.needs, {*kind.params, *known.outer})
    given = [(param, keys.given[param.name]) for param in kind.params.values() if param.name in keys.given]
    params = {param.name: _param(sink, param, value, around) for param, value in given}
    good = {param: expr for param, expr in params.items() if expr is not None}
    check_worth(sink, kind, good, around.values, name.span, needs)
    check_names(sink, keys.when, known.outer)
    check_condition(sink, keys.when, known.option_words)
    return Cache(
        name=name.text,
        kind=kind.name,
        layers=parse_layers(sink, keys.layers, around.layers, around.drafts),
        params=good,
        span=name.span,
        optional=keys.optional,
        needs=needs,
        when=keys.when,
    )


def _kind(sink: Sink, name: YamlScalar, tree: Tree, around: ModelContext, known: ModelReferences) -> Kind | None:
    """The kind that a cache is of; its keys are known with that only. None, reported, where it names none."""
    given = {key.text: value for key, value in entries(sink, tree, f"cache '{name.text}'").items()}
    chosen = NameShape("kind").read(sink, given.get("kind"), "kind")
    if chosen is None:
        if isinstance(tree, YamlTable) and "kind" not in given:
            meant = close(name.text, {*around.caches} - {name.text})
            help = f"add kind: …, or did you mean '{meant[0]}'?" if meant else "add kind: …"
            sink.add("K002", f"cache '{name.text}' lacks 'kind'", name.span, help=help)
        return None
    if chosen.text not in known.kinds:
        help = nearest(chosen.text, known.kinds) or "a file of your own is named, too, or found with --layouts DIR"
        sink.add("K008", f"unknown kind '{chosen.text}'", chosen.span, help=help)
        return None
    return guarded(sink, lambda: known.kinds[chosen.text])


def _param(sink: Sink, param: Param, tree: Tree, around: ModelContext) -> Expr | None:
    before = len(sink.errors)
    expr = checked(sink, param, EXPRESSION.read(sink, tree, f"'{param.name}'"))
    check_value(sink, param, expr, {"dtype", "query_heads"} | set(around.values))
    return expr if len(sink.errors) == before else None
