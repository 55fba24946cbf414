"""Read model files: which layers have which cache, with which numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from kvplan.dsl.files.conditions import OptionWords, check_condition
from kvplan.dsl.files.documents import described, is_known, params_of
from kvplan.dsl.files.model_hints import ModelHints
from kvplan.dsl.files.needs import check_tokens, parse_needs
from kvplan.dsl.files.static_check import check_worth
from kvplan.dsl.files.variants import notes
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Expr, Value
from kvplan.dsl.rules.params import check_value, checked
from kvplan.dsl.rules.rule import parse_own
from kvplan.dsl.schema.fields import check_names, entries, guarded, shown
from kvplan.dsl.schema.kind import Kind, Param
from kvplan.dsl.schema.model import CACHE, CACHES, MODEL, NO_CACHE, Cache, Model, NoCache
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.schema.shapes import EXPRESSION, NameShape, WholeShape
from kvplan.dsl.text.diagnostics import Sink, close, layer_ranges
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import NUMBERS, Tree, YamlList, YamlScalar, YamlTable

ALL, DRAFTS = "all", "drafts"
ASCENDING = "list layers in ascending order, each once"
LIST_THEM = "list each number, [0, 1, 2], or write a condition: layer <= 2"
RANGE = re.compile(r"\d+\s*(-|\.\.)\s*\d+")
ONE_OF_TWO = "take them out of one of the two"


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The context of a cache in its file: the numbers of layers and draft layers, words, names of caches."""

    layers: int
    drafts: int
    values: Mapping[str, Value]
    caches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelReferences:
    """The things that a model file may refer to: kinds, names for a kind's expressions besides its parameters, engines,
    and the options of all engines. `hints` are made only if a key or name is unknown."""

    kinds: Mapping[str, Kind]
    outer: tuple[str, ...]
    engines: Collection[str]
    option_words: Callable[[], OptionWords]
    hints: Callable[[], ModelHints]


def parse_model(sink: Sink, root: YamlTable, name: str, known: ModelReferences) -> Model:
    """The model, with every error in the sink."""
    keys = MODEL.read(sink, root, hint=lambda key: known.hints().of_model(key, root.get(key)))
    kinds = known.kinds
    for engine in keys.sides:
        is_known(sink, "engine", engine, known.engines)
    # An invalid number of drafts still says that there are some.
    invalid = MODEL.key("drafts").shape.read(Sink(), keys.written("drafts"), "drafts") is None
    drafts = 1 if invalid and "drafts" in keys.given else keys.drafts
    values: dict[str, Value | None] = {
        "dtype": keys.dtype or None,
        "query_heads": keys.query_heads,
        "architecture": keys.checkpoint.architecture or None,
        "model_type": keys.checkpoint.model_type or None,
    }
    trees = CACHES.read(sink, keys.written("caches"), "caches")
    stored = {word: value for word, value in values.items() if value is not None}
    around = ModelContext(layers=keys.layers, drafts=drafts, values=stored, caches=tuple(trees))
    caches: dict[str, Cache] = {}
    for cache, tree in trees.items():
        with sink.about(f"cache '{cache}'", cache.span.path):
            if (read := _cache(sink, cache, tree, around, known)) is not None:
                caches[cache] = read
    no_cache = _no_cache(sink, keys.no_cache, around, caches)
    if "config" in keys.given and not keys.match:
        help = "add match: {architectures: …}"
        sink.add(
            "K002",
            "'config' is for the configurations that 'match' names, and lacks it",
            keys.given["config"].span,
            help=help,
        )
    config = parse_own(sink, keys.written("config"), partial(params_of, sink, kinds))
    return replace(
        keys,
        name=name,
        values=stored,
        caches=caches,
        drafts=drafts,
        notes=tuple(notes(root)),
        no_cache=no_cache,
        config=config,
    )


def _cache(sink: Sink, name: YamlScalar, tree: Tree, around: ModelContext, known: ModelReferences) -> Cache | None:
    kind = _kind(sink, name, tree, around, known)
    if kind is None:
        return None
    required = [param.name for param in kind.params.values() if param.default is None]
    what = f"cache '{name}' of kind '{kind.name}'"
    keys = CACHE.read(sink, tree, what, kind.params, required, lambda key: known.hints().of_cache(key, kind, tree))
    check_tokens(sink, kind.store, f"kind '{kind.name}'", keys.given)
    needs = parse_needs(sink, keys.written("needs"), {*kind.params, *known.outer})
    given = [(param, keys.given[param.name]) for param in kind.params.values() if param.name in keys.given]
    params = {param.name: _param(sink, param, value, around) for param, value in given}
    good = {param: expr for param, expr in params.items() if expr is not None}
    check_worth(sink, kind, good, around.values, name.span, needs)
    check_names(sink, keys.when, known.outer, hint=lambda word: known.hints().of_condition(word))
    check_condition(sink, keys.when, known.option_words)
    layers = parse_layers(sink, keys.written("layers"), around.layers, around.drafts)
    return replace(keys, name=name, kind=kind.name, layers=layers, params=good, needs=needs)


def _no_cache(sink: Sink, keys: NoCache, around: ModelContext, caches: Mapping[str, Cache]) -> NoCache:
    """The layers declared without a cache. Reports layers that have one, and layers listed twice (K012)."""
    mlp, shared = (parse_layers(sink, keys.written(name), around.layers, around.drafts) for name in NO_CACHE.known)
    pairs = [(f"no_cache and cache '{cache.name}'", (*mlp, *shared), cache.layers) for cache in caches.values()]
    for what, layers, others in (*pairs, ("mlp and shared of no_cache", mlp, shared)):
        if both := [layer for layer in layers if layer in others]:
            sink.add("K012", f"{what} both have {layer_ranges(both)}", keys.span, help=ONE_OF_TWO)
    return replace(keys, mlp=mlp, shared=shared)


def _kind(sink: Sink, name: YamlScalar, tree: Tree, around: ModelContext, known: ModelReferences) -> Kind | None:
    """The kind of a cache, which decides its further keys. None, with an error, if it names no known kind."""
    given = entries(sink, tree, f"cache '{name}'")
    chosen = NameShape("kind").read(sink, given.get("kind"), "kind")
    if chosen is None:
        if isinstance(tree, YamlTable) and "kind" not in given:
            meant = close(name, {*around.caches} - {name})
            help = f"add kind: …, or did you mean '{meant[0]}'?" if meant else "add kind: …"
            sink.add("K002", f"cache '{name}' lacks 'kind'", name.span, help=help)
        return None
    return described(sink, "kind", chosen, known.kinds)


def _param(sink: Sink, param: Param, tree: Tree, around: ModelContext) -> Expr | None:
    before = len(sink.errors)
    expr = checked(sink, param, EXPRESSION.read(sink, tree, f"'{param.name}'"))
    check_value(sink, param, expr, {*WORDS, *around.values})
    return expr if len(sink.errors) == before else None


def parse_layers(sink: Sink, tree: Tree | None, count: int, drafts: int) -> tuple[int, ...]:
    """Layer numbers from 0, ascending. The model's own are below `count`, its draft layers follow. Reports K012."""
    if tree is None:
        return ()
    if isinstance(tree, YamlList):
        return _listed(sink, tree, count, drafts)
    if not isinstance(tree, YamlScalar) or tree.empty:
        help = "a list of numbers, all, drafts, or an expression of layer"
        sink.add("K012", f"layers cannot be {shown(tree)}", tree.span, help=help)
        return ()
    if tree == ALL:
        return tuple(range(count))
    if tree.startswith("[") or (NUMBERS.fullmatch(tree) and not tree.isdigit()):
        help = "take out the quotes" if tree.startswith("[") else LIST_THEM
        sink.add("K012", f"layers are a list, not '{tree}'", tree.span, help=help)
        return ()
    if tree == DRAFTS:
        if not drafts:
            sink.add("K012", "the model has no draft layers", tree.span, help="say how many there are: drafts: 1")
        return tuple(range(count, count + drafts))
    return _true_layers(sink, EXPRESSION.read(sink, tree, "layers"), tree.span, count)


def _true_layers(sink: Sink, expr: Expr | None, span: SourceSpan, count: int) -> tuple[int, ...]:
    """The model's layers for which an expression is true."""
    if expr is None:
        return ()
    before = len(sink.errors)
    near = close(expr.text, (ALL, DRAFTS))
    forms = "all, drafts, a list, or an expression of layer: layer % 4 == 3"
    check_names(sink, expr, ("layer", "layers"), f"did you mean '{near[0]}'?" if near else forms)
    layers: list[int] = []
    for layer in range(count):
        if len(sink.errors) > before:
            return ()
        if _truth(sink, expr, layer, count):
            layers.append(layer)
    if len(sink.errors) == before and count:
        _check_choice(sink, expr, layers, count, span)
    return tuple(layers)


def _check_choice(sink: Sink, expr: Expr, chosen: Sequence[int], count: int, span: SourceSpan) -> None:
    """Reports K012 for an expression that chooses no layer, or that does not depend on the layer."""
    if "layer" not in expr.names:
        help = "`layer` is the number of a layer, `layers` how many there are; for every layer: all"
        sink.add("K012", f"{expr.text} is the same for every layer: it has no `layer`", span, help=help)
    elif not chosen:
        sink.add("K012", f"{expr.text} is true for none of {count} layers", span)


def _truth(sink: Sink, expr: Expr, layer: int, count: int) -> bool:
    value = guarded(sink, lambda: evaluate(expr, {"layer": layer, "layers": count}))
    if value is not None and not isinstance(value, bool):
        help = "compare it: layer % 4 == 3"
        sink.add("T001", f"layers must be a condition; for layer {layer} it is {value}", expr.tree.span, help=help)
    return value is True


def _layer(sink: Sink, item: Tree) -> int | None:
    """A number in a list of layers; None, with an error, for anything else. A range is none (K012)."""
    if isinstance(item, YamlScalar) and RANGE.fullmatch(item):
        sink.add("K012", f"a list of layers has no ranges, as '{item}'", item.span, help=LIST_THEM)
        return None
    return WholeShape().read(sink, item, "a layer")


def _listed(sink: Sink, tree: YamlList, count: int, drafts: int) -> tuple[int, ...]:
    if not tree.items:
        sink.add("K012", "layers cannot be an empty list", tree.span, help="leave the cache out")
    read = ((_layer(sink, item), item.span) for item in tree.items)
    numbers = [(number, span) for number, span in read if number is not None]
    most = count + drafts
    for number, span in numbers:
        if count and number >= most:
            whole = f"a model with {count} layers" + (f" and {drafts} draft" if drafts else "")
            sink.add("K012", f"layer {number} of {whole}", span, help=f"layers are numbered from 0 to {most - 1}")
    for (before, _), (number, span) in pairwise(numbers):
        if number <= before:
            fault = "twice" if number == before else f"after layer {before}"
            sink.add("K012", f"layer {number} is listed {fault}", span, help=ASCENDING)
    return tuple(number for number, _ in numbers)
