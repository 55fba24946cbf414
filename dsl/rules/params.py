"""Read and check parameters of kinds and options of engines: type, default, allowed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.nodes import Expr, Name, Node, Number, Text
from kvplan.dsl.schema.fields import check_names, worded
from kvplan.dsl.schema.kind import Param
from kvplan.dsl.text.diagnostics import Sink, nearest_or_all
from kvplan.dsl.text.yaml_reader import Named, YamlScalar

# The message for a word if a value of this type is expected.
WANTED = {"int": "a whole number is expected", "sizes": "a set of sizes is expected: multiples(16) or sizes(16, 32)"}


def read_params(sink: Sink, given: Named[Param]) -> dict[str, Param]:
    """The parameters by name, checked. Reports T…, K010."""
    return {name: _named(sink, name, param) for name, param in given.items()}


def _named(sink: Sink, name: YamlScalar, param: Param) -> Param:
    for alias, word in param.aliases.items():
        if word not in param.values:
            message = f"alias '{alias}' stands for '{word}', which is no value"
            sink.add("K010", message, word.span, help=nearest_or_all(word, param.values))
    if param.unit and param.type != "int":
        # The type's place: a unit may come from the file that this one extends.
        message = f"'{name}' has a unit, {param.unit}, and only a whole number has one"
        sink.add("T003", message, param.given["type"].span, help="leave out 'unit' or 'type'")
    named = replace(param, name=name)
    return replace(named, default=checked(sink, named, param.default))


def meanings(param: Param) -> Mapping[str, str]:
    """The bare words that a parameter's value may be, each with the word that it means."""
    if param.type == "dtype":
        return {name: dtypes.canonical(name) for name in dtypes.NAMES}
    if param.type == "name":
        return {**{value: value for value in param.values}, **param.aliases}
    return {}


def checked(sink: Sink, param: Param, expr: Expr | None) -> Expr | None:
    """A value or default of `param`, with bare words resolved. Reports impossible values (T003, T002, K010)."""
    settled = worded(expr, meanings(param))
    if settled is None:
        return None
    tree = settled.tree
    if isinstance(tree, Number) and param.type not in ("int", "sizes"):
        sink.add("T003", f"'{param.name}' is a {param.type}, not a number", tree.span)
    elif isinstance(tree, Text):
        _check_word(sink, param, tree)
    return settled


def _check_word(sink: Sink, param: Param, tree: Text) -> None:
    if param.type in ("int", "sizes") or isinstance(tree.value, bool):
        wanted = {"int": "a number", "sizes": "a set of sizes"}.get(param.type, "a word")
        said = f"'{param.name}' is {wanted}, not '{str(tree.value).lower()}'"
        sink.add("T003", said, tree.span, help=_left_out(param, tree))
    elif param.type == "dtype" and tree.value not in dtypes.SIZES:
        sink.add("T002", f"'{tree.value}' is not an element type", tree.span, help=dtypes.advice(tree.value))
    elif param.values and tree.value not in param.values:
        sink.add("K010", f"'{param.name}' cannot be '{tree.value}'", tree.span, help=_value(tree.value, param.values))


def _left_out(param: Param, tree: Node) -> str:
    """Advice about a wrong value: what no value means; empty for a default."""
    default = param.default
    return f"if it is left out, it is {default.text}" if default and default.tree is not tree else ""


def _value(word: str, values: Sequence[str]) -> str:
    """Advice for a wrong word: the short name if it is the alias of an element type, else the nearest values."""
    short = dtypes.canonical(word)
    return f"write {short}" if short in values else nearest_or_all(word, values)


def check_defaults(sink: Sink, params: Mapping[str, Param], outer: Iterable[str]) -> None:
    """Report unknown names in defaults (E005) and defaults that need each other (E007)."""
    known = {*params, *outer}
    for param in params.values():
        check_value(sink, param, param.default, known)
    check_circles(sink, {name: p.default for name, p in params.items() if p.default is not None})


def check_value(sink: Sink, param: Param, expr: Expr | None, known: set[str]) -> None:
    """Report names in a value or default of `param` that are not `known` (E005, T002, K010)."""
    if param.type == "dtype":
        check_dtype(sink, expr, known)
    elif expr and param.values and isinstance(expr.tree, Name) and expr.tree.id not in known:
        help = _value(expr.text, param.values)
        sink.add("K010", f"'{param.name}' cannot be '{expr.text}'", expr.tree.span, help=help)
    else:
        check_names(
            sink, expr, known, WANTED.get(param.type, ""), lambda _: _left_out(param, expr.tree) if expr else ""
        )


def check_dtype(sink: Sink, expr: Expr | None, known: set[str]) -> None:
    """Report a bare name that is neither known nor an element type (T002), and unknown names elsewhere (E005)."""
    if expr is None or not isinstance(expr.tree, Name):
        check_names(sink, expr, known)
    elif expr.tree.id not in known:
        name, help = expr.tree.id, dtypes.advice(expr.tree.id, known)
        sink.add("T002", f"'{name}' is neither an element type nor a name", expr.tree.span, help=help)


def check_circles(sink: Sink, exprs: Mapping[str, Expr]) -> None:
    """Report expressions whose names lead back to themselves (E007), once per circle."""
    done: set[str] = set()
    for name in exprs:
        _walk(sink, exprs, (name,), done)


def _walk(sink: Sink, exprs: Mapping[str, Expr], path: tuple[str, ...], done: set[str]) -> None:
    name = path[-1]
    for other in sorted(exprs[name].names & exprs.keys()):
        if name in done or other in done:
            continue
        if other not in path:
            _walk(sink, exprs, (*path, other), done)
            continue
        circle = path[path.index(other) :]
        shown = " -> ".join((*circle, other))
        sink.add("E007", f"'{other}' needs itself: {shown}", exprs[other].tree.span, help="give one of them a value")
        done.update(circle)
    done.add(name)
