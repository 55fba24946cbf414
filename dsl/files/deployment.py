"""Deployment files: which pairs of sides of which models are to be compiled."""

from __future__ import annotations

from pathlib import Path

from kvplan.dsl.model import Deployment, PlanSpec
from kvplan.dsl.schema.fields import entries, fields, items, scalar, shape, text
from kvplan.dsl.schema.model import DEPLOYMENT, PLAN
from kvplan.dsl.text.diagnostics import Sink, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

SUFFIXES = (".yaml", ".yml", ".yam")


def parse_deployment(sink: Sink, root: YamlTable, name: str, span: SourceSpan, models: set[str]) -> Deployment:
    """A deployment, with every error in the sink. `models` are the known names; files are named by path."""
    found = fields(sink, root, DEPLOYMENT.what, DEPLOYMENT.known, DEPLOYMENT.required)
    for key in ("doc", "doc-ref"):
        text(sink, found.get(key), key)
    plans = tuple(_plan(sink, item, models) for item in items(sink, found.get("plans"), "plans"))
    return Deployment(name, text(sink, found.get("title"), "title"), plans, span)


def _plan(sink: Sink, tree: Tree, models: set[str]) -> PlanSpec:
    found = fields(sink, tree, PLAN.what, PLAN.known, PLAN.required)
    named = {_model(sink, model, models): model.span for model in _texts(sink, found.get("models"), "models")}
    sides = {side: _texts(sink, found.get(side), side) for side in ("prefill", "decode")}
    given = [
        (key, scalar(sink, value, f"'{key.text}'"))
        for key, value in entries(sink, found.get("options"), "options").items()
    ]
    options = {key.text: value.text for key, value in given if value}
    places = {
        **{("model", name): span for name, span in named.items()},
        **{(side, text.text): text.span for side, texts in sides.items() for text in texts},
        **{("option", key.text): key.span for key, _ in given},
        **{("value", key.text): value.span for key, value in given if value},
    }
    prefill, decode = (tuple(text.text for text in texts) for texts in sides.values())
    return PlanSpec(tuple(named), prefill, decode, options, tree.span, places)


def is_path(word: str) -> bool:
    """Whether a word names a file and not what a layout file describes."""
    return word.endswith(SUFFIXES) or "/" in word


def _model(sink: Sink, model: YamlScalar, models: set[str]) -> str:
    """A model's name, or the path of its file: relative ones begin at the deployment file's folder."""
    if not is_path(model.text):
        if model.text not in models:
            sink.add("K008", f"unknown model '{model.text}'", model.span, nearest(model.text, models))
        return model.text
    path = Path(model.span.path).parent / model.text
    if not path.is_file():
        help = "relative paths begin at the deployment file's folder"
        sink.add("Y012", f"no such file '{path.as_posix()}'", model.span, help=help)
    return str(path)


def _texts(sink: Sink, tree: Tree | None, what: str) -> list[YamlScalar]:
    """One value or a list of them, none empty."""
    listed = tree.items if isinstance(tree, YamlList) else () if tree is None else (tree,)
    found = []
    for item in listed:
        if isinstance(item, YamlScalar) and not item.empty:
            found.append(item)
        else:
            sink.add("K003", f"{what} must be a value or a list of values, not {shape(item)}", item.span)
    if tree is not None and not listed:
        sink.add("K003", f"{what} must be a value or a list of values, not an empty list", tree.span)
    return found
