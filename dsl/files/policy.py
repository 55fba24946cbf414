"""Check an engine's policies: algorithms, by name or by an option's value, for groups of layers and for the mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvplan.dsl.schema.engine import MeshRules
from kvplan.dsl.schema.fields import check_names, check_sentence, placeholders
from kvplan.dsl.schema.forms import Form, FormKeys
from kvplan.dsl.schema.kind import Param
from kvplan.dsl.schema.shapes import WordShape
from kvplan.dsl.text.diagnostics import Sink, listed, nearest
from kvplan.dsl.text.yaml_reader import YamlScalar


def check_options(sink: Sink, form: Form[Any], keys: FormKeys, options: Mapping[str, Param]) -> None:
    """Report keys whose word is an `{option}` that is unknown (E005), or may have other values than the key (K010)."""
    for key in form.keys:
        tree = keys.given.get(key.name)
        if isinstance(key.shape, WordShape) and isinstance(tree, YamlScalar) and "{" in tree:
            _check_option(sink, tree, key.name, key.shape.values, options)


def _check_option(
    sink: Sink, tree: YamlScalar, what: str, allowed: tuple[str, ...], options: Mapping[str, Param]
) -> None:
    """Report a rule that is not one {option} (K010), an unknown option (E005), and forbidden values (K010)."""
    name, help = next(iter(placeholders(tree)), ""), f"{what} is {listed(allowed)}"
    if tree != "{" + name + "}":
        sink.add("K010", f"{what} cannot be '{tree}'", tree.span, help="write a word, or one {option} and no more")
    elif name not in options:
        check_sentence(sink, tree, options)
    elif options[name].type != "name" or not options[name].values:
        message = f"{what} cannot be any value of option '{name}'"
        sink.add("K010", message, tree.span, "only one of type name that lists its values can choose", help=help)
    elif bad := [value for value in options[name].values if value not in allowed]:
        quoted = listed([f"'{value}'" for value in bad])
        sink.add("K010", f"{what} cannot be {quoted}, which option '{name}' may be", tree.span, help=help)


def check_mesh(sink: Sink, mesh: MeshRules, known: Iterable[str]) -> None:
    """Report unknown axes (K008), axes listed twice (K010), `tokens` without `interleave` (K002), unknown names (E005).

    `known` are the names of the engine's expressions.
    """
    axes = {*mesh.workers, *mesh.derived}
    _check_once(sink, (*mesh.workers, *mesh.derived))
    for axis in (axis for axis in mesh.tokens if axis not in axes):
        sink.add("K008", f"unknown mesh axis '{axis}'", axis.span, help=nearest(axis, axes))
    _check_once(sink, [axis for axis in mesh.tokens if axis in axes])
    if mesh.tokens and mesh.interleave is None and mesh.tree:
        sink.add("K002", "mesh lacks 'interleave'", mesh.tree.span, help="say how many tokens a worker has at once")
    ranks = {f"rank({axis})" for axis in mesh.workers}
    for expr in mesh.derived.values():
        check_names(sink, expr, {*known, *ranks})
    check_names(sink, mesh.interleave, known)


def _check_once(sink: Sink, axes: Iterable[YamlScalar]) -> None:
    """Report mesh axes that are listed twice (K010)."""
    known: set[str] = set()
    for axis in axes:
        if axis in known:
            sink.add("K010", f"mesh axis '{axis}' is listed twice", axis.span, help="list each axis once")
        known.add(axis)
