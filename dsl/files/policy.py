"""An engine's policies, algorithms by name or by an option's value: how layers form groups, workers a mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvplan.dsl.model import GroupRules, MeshRules, Param
from kvplan.dsl.schema.engine import ASSIGNS, FORMS, GROUPS, LAYERS, MESH, OVERLAYS
from kvplan.dsl.schema.fields import (
    check_names,
    check_sentence,
    expression,
    expressions,
    fields,
    items,
    placeholders,
    scalar,
    words,
)
from kvplan.dsl.text.diagnostics import Sink, listed, nearest
from kvplan.dsl.text.source import SourceSpan
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar


def choice(sink: Sink, tree: Tree | None, what: str, allowed: Sequence[str], options: Mapping[str, Param]) -> str:
    """One of `allowed`, or `{option}` as it is written, where every value of the option is one of them."""
    found = scalar(sink, tree, what)
    if found is None:
        return allowed[0]
    if placeholders(found.text):
        _check_option(sink, found, what, allowed, options)
    elif found.text not in allowed:
        sink.add("K010", f"{what} cannot be '{found.text}'", found.span, help=nearest(found.text, allowed))
    return found.text


def _check_option(
    sink: Sink, tree: YamlScalar, what: str, allowed: Sequence[str], options: Mapping[str, Param]
) -> None:
    """Report a rule that is not one {option} (K010), an unknown option (E005), values that are not allowed (K010)."""
    name, help = placeholders(tree.text)[0], f"{what} is {listed(allowed)}"
    if tree.text != "{" + name + "}":
        sink.add("K010", f"{what} cannot be '{tree.text}'", tree.span, help="write a word, or one {option} and no more")
    elif name not in options:
        check_sentence(sink, tree, options)
    elif options[name].type != "name" or not options[name].values:
        message = f"{what} cannot be any value of option '{name}'"
        sink.add("K010", message, tree.span, "only one of type name that lists its values can choose", help=help)
    elif bad := [value for value in options[name].values if value not in allowed]:
        quoted = listed([f"'{value}'" for value in bad])
        sink.add("K010", f"{what} cannot be {quoted}, which option '{name}' may be", tree.span, help=help)


def parse_groups(sink: Sink, tree: Tree | None, span: SourceSpan, options: Mapping[str, Param]) -> GroupRules:
    found = fields(sink, tree, GROUPS.what, GROUPS.known, GROUPS.required) if tree else {}
    form = choice(sink, found.get("form"), "form", FORMS, options)
    assign = choice(sink, found.get("assign"), "assign", ASSIGNS, options)
    overlay = choice(sink, found.get("overlay"), "overlay", OVERLAYS, options)
    block, inside, rigid = (expression(sink, found.get(name), f"'{name}'") for name in ("block", "inside", "rigid"))
    stretch, where = _fraction(sink, found.get("stretch")), tree.span if tree else span
    return GroupRules(form, assign, overlay, stretch, where, block, {}, inside, rigid)


def _fraction(sink: Sink, tree: Tree | None) -> tuple[int, int]:
    found = scalar(sink, tree, "stretch")
    if found is None:
        return 1, 1
    over, _, under = found.text.partition("/")
    if over.isdecimal() and (under or "1").isdecimal() and int(under or 1) and int(over) >= int(under or 1):
        return int(over), int(under or 1)
    sink.add("K013", f"stretch must be a fraction from 1, not '{found.text}'", found.span, help="write it as 3/2")
    return 1, 1


def parse_mesh(sink: Sink, tree: Tree | None, span: SourceSpan, options: Mapping[str, Param]) -> MeshRules:
    found = fields(sink, tree, MESH.what, MESH.known, MESH.required) if tree else {}
    derived = expressions(sink, found.get("derived"), "derived")
    workers = words(sink, found.get("workers"), "workers")
    tokens = _tokens(sink, found.get("tokens"), {*workers, *derived})
    layers = choice(sink, found.get("layers"), "layers", LAYERS, options)
    chunk = expression(sink, found.get("chunk"), "chunk")
    if tokens and chunk is None and tree:
        sink.add("K002", "mesh lacks 'chunk'", tree.span, help="say how many tokens a worker takes per turn")
    return MeshRules(workers, derived, layers, tokens, chunk, tree.span if tree else span)


def _tokens(sink: Sink, tree: Tree | None, axes: set[str]) -> tuple[str, ...]:
    """The axes that tokens are shared out over, outermost first: one, a list of them, or none."""
    found: list[str] = []
    for item in items(sink, tree, "tokens") if isinstance(tree, YamlList) else (tree,):
        axis = scalar(sink, item, "an axis of tokens")
        if axis is None:
            continue
        if axis.text not in axes:
            sink.add("K008", f"unknown mesh axis '{axis.text}'", axis.span, help=nearest(axis.text, axes))
        elif axis.text in found:
            sink.add("K010", f"mesh axis '{axis.text}' is listed twice", axis.span, help="list each axis once")
        found.append(axis.text)
    return tuple(found)


def check_mesh(sink: Sink, mesh: MeshRules, known: Iterable[str]) -> None:
    """Report unknown names in a mesh (E005). `known` are those of the engine's expressions."""
    ranks = {f"rank({axis})" for axis in mesh.workers}
    for expr in mesh.derived.values():
        check_names(sink, expr, {*known, *ranks})
    check_names(sink, mesh.chunk, known)
