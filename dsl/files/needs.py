"""`needs`: which tokens of a cache a reader must have. A kind says it, a cache of a model may say otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.nodes import SizeSet, Value
from kvplan.dsl.model import NeedsRule
from kvplan.dsl.schema.fields import check_names, entries, expression, fields, guarded
from kvplan.dsl.schema.kind import ALL, NEEDS
from kvplan.dsl.text.diagnostics import Diagnostic, Sink
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlScalar, YamlTable


def parse_needs(sink: Sink, tree: Tree | None, known: Iterable[str]) -> NeedsRule | None:
    """`all` as a Needs without limits, a mapping, or None where there is nothing; `known` are the names it may use."""
    if tree is None:
        return None
    if isinstance(tree, YamlScalar):
        if tree.text != ALL:
            sink.add("K010", f"needs cannot be '{tree.text}'", tree.span, help="write all, {window: …} or {chunk: …}")
        return NeedsRule(span=tree.span)
    found = fields(sink, tree, NEEDS.what, NEEDS.known)
    if isinstance(tree, YamlTable) and len(found) == len(entries(sink, tree, "needs")):
        _check_limits(sink, tree, found)
    exprs = {name: expression(sink, value, f"'{name}'") for name, value in found.items()}
    for expr in exprs.values():
        check_names(sink, expr, known, "a number of tokens is expected")
    limits = exprs.get("window"), exprs.get("chunk")
    if all(expr and not names(expr) for expr in limits):
        values = [guarded(sink, partial(evaluate, expr, {})) for expr in limits if expr]
        sink.found += at_once(values, tree.span)
    return NeedsRule(**exprs, span=tree.span)


def at_once(limits: Sequence[Value | SizeSet | None], place: SourceSpan, note: str = "") -> list[Diagnostic]:
    """The error of a window and a chunk that are both more than 0 (B006), none where one is not."""
    if any(not isinstance(value, int) or value < 1 for value in limits):
        return []
    said = "needs have a window of {} and a chunk of {} tokens".format(*limits)
    return [Diagnostic("B006", said, place, (note,) if note else (), "leave out one of them, or make it 0")]


def _check_limits(sink: Sink, tree: YamlTable, found: Mapping[str, Tree]) -> None:
    """Report what has nothing to add to (K002): `retain` goes with a window, `sink` with a window or a chunk."""
    if "retain" in found and "window" not in found:
        sink.add("K002", "needs has 'retain' but lacks 'window'", tree.span, help="retained tokens lie before a window")
    elif "window" not in found and "chunk" not in found:
        sink.add("K002", "needs lacks 'window' or 'chunk'", tree.span, help="where every token is needed: needs: all")


def check_ring(sink: Sink, store: str, found: Mapping[str, Tree]) -> None:
    """Report a ring without its size (K002), and a ring's size where none is stored (K015)."""
    if store == "ring" and "ring" not in found:
        said, help = "the kind stores a ring but lacks 'ring'", "add ring: …, the number of tokens that it keeps"
        sink.add("K002", said, found["store"].span, help=help)
    if store != "ring" and "ring" in found:
        what = "a state" if store == "state" else store
        said = f"'ring' is the size of a ring, and the kind stores {what}"
        sink.add("K015", said, found["ring"].span, help="store: ring")


def check_tokens(sink: Sink, store: str, whose: str, found: Mapping[str, Tree]) -> None:
    """Report what is said about tokens where a state is stored (K015)."""
    for key in ("needs", "length"):
        if store == "state" and key in found:
            place = found[key].span
            sink.add("K015", f"'{key}' is about tokens, and {whose} stores a state", place, help=f"leave out '{key}'")
