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
from kvplan.dsl.schema.fields import (
    LABEL,
    check_names,
    entries,
    expression,
    fields,
    guarded,
    integer,
    named,
    scalar,
    text,
    truth,
)
from kvplan.dsl.schema.model import CACHE, MODEL, MOST_LAYERS
from kvplan.dsl.schema.params import check_value, checked, dtype_word
from kvplan.dsl.text.diagnostics import Sink, close, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlTable


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
    spoken: Callable[[], OptionWords] = OptionWords


def parse_model(sink: Sink, root: YamlTable, name: str, span: SourceSpan, known: ModelReferences) -> Model:
    """A model, with every error in the sink."""
    found = fields(sink, root, MODEL.what, MODEL.known, MODEL.required)
    layers = integer(sink, found.get("layers"), "layers", 1, MOST_LAYERS)
    drafts = integer(sink, found.get("drafts"), "drafts", 0, MOST_LAYERS)
    # Of a number of drafts that is none it is known that there are some.
    most = drafts if drafts is not None else int("drafts" in found)
    entries(sink, found.get("match"), "match")
    parse_own(sink, found.get("config"), name, lambda kind: known.kinds[kind].params if kind in known.kinds else None)
    given = named(sink, found.get("caches"), "caches", LABEL)
    around = ModelContext(layers or 0, most, _values(sink, found), tuple(given))
    caches = {name: _cache(sink, name, value, place, around, known) for name, (value, place) in given.items()}
    title, ref = text(sink, found.get("title"), "title"), text(sink, found.get("doc-ref"), "doc-ref")
    text(sink, found.get("doc"), "doc")
    good = {cache: made for cache, made in caches.items() if made is not None}
    return Model(name, title, ref, around.layers, around.values, good, span, most, tuple(notes(root)))


def _values(sink: Sink, found: Mapping[str, Tree]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    dtype = dtype_word(sink, found.get("dtype"), "dtype")
    heads = integer(sink, found.get("query_heads"), "query_heads")
    values |= {"dtype": dtype} if dtype is not None else {}
    return values | ({"query_heads": heads} if heads is not None else {})


def _cache(
    sink: Sink,
    name: str,
    tree: Tree,
    span: SourceSpan,
    around: ModelContext,
    known: ModelReferences,
) -> Cache | None:
    kinds, values = known.kinds, around.values
    given = {key.text: value for key, value in entries(sink, tree, f"cache '{name}'").items()}
    chosen = scalar(sink, given.get("kind"), "kind")
    if chosen is None:
        if isinstance(tree, YamlTable) and "kind" not in given:
            meant = close(name, {*around.caches} - {name})
            help = f"add kind: …, or did you mean '{meant[0]}'?" if meant else "add kind: …"
            sink.add("K002", f"cache '{name}' lacks 'kind'", span, help=help)
        return None
    if chosen.text not in kinds:
        help = nearest(chosen.text, kinds) or "a file of your own is named, too, or found with --layouts DIR"
        sink.add("K008", f"unknown kind '{chosen.text}'", chosen.span, help=help)
        return None
    kind = guarded(sink, lambda: kinds[chosen.text])
    if kind is None:
        return None
    found = fields(sink, tree, f"cache '{name}' of kind '{kind.name}'", [*CACHE.known, *kind.params], _required(kind))
    check_tokens(sink, kind.store, f"kind '{kind.name}'", found)
    needs = parse_needs(sink, found.get("needs"), {*kind.params, *known.outer})
    params = {key: _param(sink, kind.params[key], found[key], values) for key in kind.params if key in found}
    good = {key: expr for key, expr in params.items() if expr is not None}
    check_worth(sink, kind, good, values, span, needs)
    held = parse_layers(sink, found.get("layers"), around.layers, around.drafts)
    when = expression(sink, found.get("when"), "when")
    check_names(sink, when, known.outer)
    check_condition(sink, when, known.spoken)
    return Cache(name, kind.name, held, good, span, truth(sink, found.get("optional"), "optional"), needs, when)


def _required(kind: Kind) -> list[str]:
    return [*CACHE.required, *(name for name, param in kind.params.items() if param.default is None)]


def _param(sink: Sink, param: Param, tree: Tree, values: Mapping[str, Value]) -> Expr | None:
    before = len(sink.found)
    expr = checked(sink, param, expression(sink, tree, f"'{param.name}'"))
    check_value(sink, param, expr, {"dtype", "query_heads"} | set(values))
    return expr if len(sink.found) == before else None
