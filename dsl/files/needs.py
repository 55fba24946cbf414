"""Read `needs`: the tokens of a cache that a reader must have. A kind gives them; a model's cache may override them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import SizeSet, Value
from kvplan.dsl.schema.fields import check_names, entries, guarded
from kvplan.dsl.schema.kind import ALL, NEEDS, NeedsRule
from kvplan.dsl.text.diagnostics import Diagnostic, Sink
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable


def parse_needs(sink: Sink, tree: Tree | None, known: Iterable[str]) -> NeedsRule | None:
    """The rule that `needs` gives, without limits for `all`; None if not given. `known` are the names it may use."""
    if tree is None:
        return None
    if isinstance(tree, YamlScalar):
        if tree != ALL:
            sink.add("K010", f"needs cannot be '{tree}'", tree.span, help="write all, {window: …} or {chunk: …}")
        return NeedsRule()
    needs = NEEDS.read(sink, tree)
    if isinstance(tree, YamlTable) and len(needs.given) == len(entries(sink, tree, "needs")):
        _check_limits(sink, tree, needs)
    for _, expr in needs.limits:
        check_names(sink, expr, known, "a number of tokens is expected")
    if needs.window and needs.chunk and not needs.window.names | needs.chunk.names:
        limits = [guarded(sink, partial(evaluate, expr, {})) for expr in (needs.window, needs.chunk)]
        sink.errors += at_once(limits, tree.span)
    return needs


def at_once(limits: Sequence[Value | SizeSet | None], place: SourceSpan) -> list[Diagnostic]:
    """The error for a window and a chunk that are both above 0 (B006), else none."""
    if any(not isinstance(value, int) or value < 1 for value in limits):
        return []
    message = "a window of {} and a chunk of {} tokens: a cache has one or the other".format(*limits)
    return [Diagnostic("B006", message, place, (), "leave out one of them, or make it 0")]


def _check_limits(sink: Sink, tree: YamlTable, keys: NeedsRule) -> None:
    """Report keys that lack the key they add to (K002): `retain` needs a window, `sink` a window or a chunk.

    `whole` may stand alone.
    """
    if "retain" in keys.given and "window" not in keys.given:
        sink.add("K002", "needs has 'retain' but lacks 'window'", tree.span, help="retained tokens lie before a window")
    elif not {"window", "chunk"} & {*keys.given} and {*keys.given} != {"whole"}:
        sink.add("K002", "needs lacks 'window' or 'chunk'", tree.span, help="where every token is needed: needs: all")


def check_ring(sink: Sink, store: str, given: Mapping[str, Tree]) -> None:
    """Report a ring without a size (K002), and a ring's size if no ring is stored (K015)."""
    if store == "ring" and "ring" not in given:
        message, help = "the kind stores a ring but lacks 'ring'", "add ring: …, the number of tokens that it keeps"
        sink.add("K002", message, given["store"].span, help=help)
    if store != "ring" and "ring" in given:
        what = "a state" if store == "state" else store
        message = f"'ring' is the size of a ring, and the kind stores {what}"
        sink.add("K015", message, given["ring"].span, help="store: ring")


def check_tokens(sink: Sink, store: str, whose: str, given: Mapping[str, Tree]) -> None:
    """Report keys about tokens if a state is stored (K015)."""
    for name in ("needs", "length"):
        if store == "state" and name in given:
            place = given[name].span
            sink.add("K015", f"'{name}' is about tokens, and {whose} stores a state", place, help=f"leave out '{name}'")
