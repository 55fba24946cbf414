"""`needs`: which tokens of a cache a reader must have. A kind says it, a cache of a model may say otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvplan.dsl.diagnostics import Sink
from kvplan.dsl.fields import check_names, entries, expression, fields
from kvplan.dsl.model import Needs
from kvplan.dsl.reader import Scalar, Table, Tree

ALL = "all"
LIMITS = ("window", "retain", "chunk", "sink")


def parse_needs(sink: Sink, tree: Tree | None, known: Iterable[str]) -> Needs | None:
    """`all` as a Needs without limits, a mapping, or None where there is nothing; `known` are the names it may use."""
    if tree is None:
        return None
    if isinstance(tree, Scalar):
        if tree.text != ALL:
            sink.add("K010", f"needs cannot be '{tree.text}'", tree.span, help="write all, {window: …} or {chunk: …}")
        return Needs(span=tree.span)
    found = fields(sink, tree, "needs", LIMITS)
    if isinstance(tree, Table) and len(found) == len(entries(sink, tree, "needs")):
        _check_limits(sink, tree, found)
    exprs = {name: expression(sink, value, f"'{name}'") for name, value in found.items()}
    for expr in exprs.values():
        check_names(sink, expr, known, "a number of tokens is expected")
    return Needs(**exprs, span=tree.span)


def _check_limits(sink: Sink, tree: Table, found: Mapping[str, Tree]) -> None:
    """Report what has nothing to add to (K002): `retain` goes with a window, `sink` with a window or a chunk."""
    if "retain" in found and "window" not in found:
        sink.add("K002", "needs has 'retain' but lacks 'window'", tree.span, help="retained tokens lie before a window")
    elif "window" not in found and "chunk" not in found:
        sink.add("K002", "needs lacks 'window' or 'chunk'", tree.span, help="where every token is needed: needs: all")


def check_tokens(sink: Sink, store: str, whose: str, found: Mapping[str, Tree]) -> None:
    """Report what is said about tokens where a state is stored (K015)."""
    for key in ("needs", "length"):
        if store == "state" and key in found:
            place = found[key].span
            sink.add("K015", f"'{key}' is about tokens, and {whose} stores a state", place, help=f"leave out '{key}'")
