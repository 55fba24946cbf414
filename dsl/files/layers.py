"""Which layers a cache has: a list, all of them, the draft layers, or those that an expression is true for."""

from __future__ import annotations

from itertools import pairwise

from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.fields import check_names, guarded, shown
from kvplan.dsl.schema.shapes import EXPRESSION, WholeShape
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar

ALL, DRAFTS = "all", "drafts"
ASCENDING = "list layers in ascending order, each once"


def parse_layers(sink: Sink, tree: Tree | None, count: int, drafts: int) -> tuple[int, ...]:
    """Layer numbers from 0, ascending: those of the model are below `count`, its drafts follow (K012)."""
    if tree is None:
        return ()
    if isinstance(tree, YamlList):
        return _listed(sink, tree, count, drafts)
    if not isinstance(tree, YamlScalar) or tree.empty:
        help = "a list of numbers, all, drafts, or an expression of layer"
        sink.add("K012", f"layers cannot be {shown(tree)}", tree.span, help=help)
        return ()
    if tree.text == ALL:
        return tuple(range(count))
    if tree.text == DRAFTS:
        if not drafts:
            sink.add("K012", "the model has no draft layers", tree.span, help="say how many there are: drafts: 1")
        return tuple(range(count, count + drafts))
    return _true_layers(sink, EXPRESSION.read(sink, tree, "layers"), tree.span, count)


def _true_layers(sink: Sink, expr: Expr | None, span: SourceSpan, count: int) -> tuple[int, ...]:
    """The model's layers that an expression is true for."""
    if expr is None:
        return ()
    before = len(sink.errors)
    check_names(sink, expr, ("layer", "layers"), "all, drafts, a list, or an expression of layer: layer % 4 == 3")
    layers: list[int] = []
    for layer in range(count):
        if len(sink.errors) > before:
            return ()
        if _truth(sink, expr, layer, count):
            layers.append(layer)
    if count and not layers and len(sink.errors) == before:
        sink.add("K012", f"{expr.text} is true for none of {count} layers", span)
    return tuple(layers)


def _truth(sink: Sink, expr: Expr, layer: int, count: int) -> bool:
    value = guarded(sink, lambda: evaluate(expr, {"layer": layer, "layers": count}))
    if value is not None and not isinstance(value, bool):
        help = "compare it: layer % 4 == 3"
        sink.add("T001", f"layers must be a condition; for layer {layer} it is {value}", expr.tree.span, help=help)
    return value is True


def _listed(sink: Sink, tree: YamlList, count: int, drafts: int) -> tuple[int, ...]:
    if not tree.items:
        sink.add("K012", "layers cannot be an empty list", tree.span, help="leave the cache out")
    read = ((WholeShape().read(sink, item, "a layer"), item.span) for item in tree.items)
    numbers = [(number, span) for number, span in read if number is not None]
    most = count + drafts
    for number, span in numbers:
        if count and number >= most:
            whole = f"a model with {count} layers" + (f" and {drafts} drafts" if drafts else "")
            sink.add("K012", f"layer {number} of {whole}", span, help=f"layers are numbered from 0 to {most - 1}")
    for (before, _), (number, span) in pairwise(numbers):
        if number <= before:
            fault = "twice" if number == before else f"after layer {before}"
            sink.add("K012", f"layer {number} is listed {fault}", span, help=ASCENDING)
    return tuple(number for number, _ in numbers)
