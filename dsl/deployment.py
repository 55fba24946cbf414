"""Deployment files: which pairs of sides of which models are to be compiled."""

from __future__ import annotations

from kvplan.dsl.diagnostics import Sink, nearest
from kvplan.dsl.fields import entries, fields, items, scalar, shape, text
from kvplan.dsl.model import Deployment, PlanSpec
from kvplan.dsl.reader import List, Scalar, Table, Tree
from kvplan.dsl.source import Span

KEYS = ("kvplan", "deployment", "title", "doc", "plans")
PLAN_KEYS = ("models", "prefill", "decode", "options")


def parse_deployment(sink: Sink, root: Table, name: str, span: Span, models: set[str]) -> Deployment:
    """A deployment, with every error in the sink. `models` are the known names; files are named by path."""
    found = fields(sink, root, "a deployment", KEYS, ("plans",))
    text(sink, found.get("doc"), "doc")
    plans = tuple(_plan(sink, item, models) for item in items(sink, found.get("plans"), "plans"))
    return Deployment(name, text(sink, found.get("title"), "title"), plans, span)


def _plan(sink: Sink, tree: Tree, models: set[str]) -> PlanSpec:
    found = fields(sink, tree, "a plan", PLAN_KEYS, ("models", "prefill", "decode"))
    wanted = _texts(sink, found.get("models"), "models")
    for model in wanted:
        if model.text not in models and not model.text.endswith((".yaml", ".yml")):
            sink.add("K008", f"unknown model '{model.text}'", model.span, nearest(model.text, models))
    sides = [tuple(s.text for s in _texts(sink, found.get(side), side)) for side in ("prefill", "decode")]
    given = {
        key.text: scalar(sink, value, f"'{key.text}'")
        for key, value in entries(sink, found.get("options"), "options").items()
    }
    options = {key: value.text for key, value in given.items() if value}
    return PlanSpec(tuple(model.text for model in wanted), sides[0], sides[1], options, tree.span)


def _texts(sink: Sink, tree: Tree | None, what: str) -> list[Scalar]:
    """One value or a list of them, none empty."""
    listed = tree.items if isinstance(tree, List) else () if tree is None else (tree,)
    found = []
    for item in listed:
        if isinstance(item, Scalar) and not item.empty:
            found.append(item)
        else:
            sink.add("K003", f"{what} must be a value or a list of values, not {shape(item)}", item.span)
    if tree is not None and not listed:
        sink.add("K003", f"{what} must be a value or a list of values, not an empty list", tree.span)
    return found
