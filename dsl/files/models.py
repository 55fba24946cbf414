"""Read model files: which layers have which cache, with which numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from kvplan.dsl.files.conditions import OptionWords, check_condition
from kvplan.dsl.files.documents import described, is_known, params_of
from kvplan.dsl.files.needs import check_tokens, parse_needs
from kvplan.dsl.files.static_check import check_worth
from kvplan.dsl.files.variants import notes
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Call, Expr, Name, Node, Value
from kvplan.dsl.rules.params import check_value, checked
from kvplan.dsl.rules.rule import parse_own
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import check_names, entries, guarded, shown
from kvplan.dsl.schema.kind import Kind, Param
from kvplan.dsl.schema.model import CACHE, CACHES, MODEL, NO_CACHE, Cache, Model, NoCache
from kvplan.dsl.schema.names import WORDS
from kvplan.dsl.schema.shapes import EXPRESSION, NameShape, WholeShape
from kvplan.dsl.text.diagnostics import Sink, close, layer_ranges, listed
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
    and the options of all engines. The rest is for hints, and asked for only if a key is unknown."""

    kinds: Mapping[str, Kind]
    outer: tuple[str, ...]
    engines: Collection[str]
    option_words: Callable[[], OptionWords] = OptionWords
    readable_kinds: Callable[[], Sequence[Kind]] = tuple
    readable_engines: Callable[[], Sequence[Engine]] = tuple
    config_words: Callable[[], Sequence[tuple[str, Expr]]] = tuple

    def of_side(self, word: str) -> str:
        """A hint at the key of a side that a word, such as an engine's flag, stands for; empty if it is none."""
        key = _side_keys(self.readable_engines()).get(word)
        return f"each side says it: {key}=…" if key else ""

    def of_condition(self, word: str) -> str:
        """A hint at the option that is meant by an unknown word in a condition; empty if no side has the word."""
        key = _side_keys(self.readable_engines()).get(word, "")
        return f"did you mean '{key}'?" if key in self.outer else f"conditions cannot use '{key}'" if key else ""

    def of_model(self, key: str, tree: Tree | None) -> str:
        """A hint at the place, or the name, of an unknown key of a model."""
        if isinstance(tree, YamlTable) and tree.get("kind"):
            return "write it under caches"
        words = (word for word, expr in self.config_words() if word in MODEL.known and key in _alternatives(expr.tree))
        return next((f"did you mean '{word}'?" for word in words), "") or self.of_side(key)

    def of_cache(self, key: str, kind: Kind) -> str:
        """A hint at the place, or the name, of an unknown key of a cache of that kind."""
        if key in MODEL.known:
            return "write it beside caches: it is for the whole model"
        if param := next((name for rule in kind.match for name, expr in rule.params.items() if expr.text == key), ""):
            return f"did you mean '{param}'?"
        kinds = self.readable_kinds()
        if not kind.split and key in _divided(kinds):
            return f"leave it out: every worker has all of a cache of kind '{kind.name}'"
        others = [f"'{other.name}'" for other in kinds if key in other.params and not close(key, kind.params)]
        return f"caches of kind {listed(others)} have it" if others else self.of_side(key)


def _side_keys(engines: Iterable[Engine]) -> dict[str, str]:
    """The keys of a side by the words for them: axes, options and flags of the engines that kvplan starts."""
    started = [each for each in engines if each.serve]
    flags = {flag: key for each in started for flag, key in each.flags.items()}
    return flags | {key: key for each in started for key in (*each.mesh.workers, *each.mesh.derived, *each.options)}


def _alternatives(node: Node) -> Iterator[str]:
    """The names whose value may be that of the whole expression."""
    if isinstance(node, Name):
        yield node.id
    if isinstance(node, Call) and node.function in ("first", "agreed"):
        yield from (name for arg in node.args for name in _alternatives(arg))


def _divided(kinds: Iterable[Kind]) -> set[str]:
    """The parameters of kinds whose items workers divide among them: heads, channels."""
    axes = ((kind.split, axis, expr) for kind in kinds for t in kind.tensors.values() for axis, expr in t.axes)
    return {expr.text for split, axis, expr in axes if axis in split and expr is not None}


def parse_model(sink: Sink, root: YamlTable, name: str, known: ModelReferences) -> Model:
    """The model, with every error in the sink."""
    keys = MODEL.read(sink, root, hint=lambda key: known.of_model(key, root.get(key)))
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
    keys = CACHE.read(sink, tree, what, kind.params, required, lambda key: known.of_cache(key, kind))
    check_tokens(sink, kind.store, f"kind '{kind.name}'", keys.given)
    needs = parse_needs(sink, keys.written("needs"), {*kind.params, *known.outer})
    given = [(param, keys.given[param.name]) for param in kind.params.values() if param.name in keys.given]
    params = {param.name: _param(sink, param, value, around) for param, value in given}
    good = {param: expr for param, expr in params.items() if expr is not None}
    check_worth(sink, kind, good, around.values, name.span, needs)
    check_names(sink, keys.when, known.outer, hint=known.of_condition)
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
    if NUMBERS.fullmatch(tree) and not tree.isdigit():
        sink.add("K012", f"layers are a list, not '{tree}'", tree.span, help=LIST_THEM)
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
