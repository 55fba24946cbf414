"""Values that an engine derives: an expression, or a mapping that says what it is, with the expression or its cases."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.dsl.lang.nodes import Choice, Expr
from kvplan.dsl.model import ValueDoc
from kvplan.dsl.schema.engine import DERIVED, CaseKeys
from kvplan.dsl.schema.shapes import EXPRESSION
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import Tree, YamlTable

ALONE = "an engine that extends another replaces it by an expression alone"


def read_derived(sink: Sink, name: str, tree: Tree) -> tuple[Expr | None, ValueDoc]:
    """A derived value and what is said of it. Reports K017 for one that has no value, or two."""
    if not isinstance(tree, YamlTable):
        return EXPRESSION.read(sink, tree, f"'{name}'"), ValueDoc()
    keys = DERIVED.read(sink, tree, f"'{name}'")
    given = [key for key in ("is", "cases") if key in keys.given]
    if len(given) != 1:
        message = f"'{name}' has {'both' if given else 'neither'} 'is' {'and' if given else 'nor'} 'cases'"
        sink.add("K017", message, tree.span, help=f"a value is one expression, or has cases; {ALONE}")
    value = _chosen(sink, name, keys.cases) if keys.cases else keys.value
    cases = tuple((_text(case.when), _text(case.value or case.otherwise)) for case in keys.cases)
    return value, ValueDoc(keys.doc, keys.unit, keys.doc_ref, cases)


def _text(expr: Expr | None) -> str:
    return " ".join(expr.text.split()) if expr else ""


def _chosen(sink: Sink, name: str, cases: Sequence[CaseKeys]) -> Expr | None:
    """The cases of a value as one expression: `a if p else b if q else c`. Reports K017 for cases that are none."""
    *others, last = cases
    good = [_is_case(sink, name, case, ("when", "is")) for case in others]
    if not _is_case(sink, name, last, ("else",)) or not all(good) or last.otherwise is None:
        return None
    value = last.otherwise
    for case in reversed(others):
        if case.when is None or case.value is None:
            return None
        tree = Choice(case.when.tree, case.value.tree, value.tree, case.when.span)
        value = Expr(f"{case.value.text} if {case.when.text} else {value.text}", tree, case.when.span)
    return value


def _is_case(sink: Sink, name: str, case: CaseKeys, wanted: tuple[str, ...]) -> bool:
    """Whether a case has the keys that one in its place has; others of its keys were told before."""
    if {*case.given} == {*wanted}:
        return True
    if case.tree is not None and isinstance(case.tree, YamlTable):
        what = "the last case" if "else" in wanted else "a case"
        has = " and ".join(f"'{key}'" for key in wanted)
        sink.add("K017", f"{what} of '{name}' has {has}, and nothing else", case.tree.span)
    return False
