"""What is known of something foreign, and what an expression over it comes to: a value, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.foreign import ASSUMING, absent
from kvplan.dsl.lang.nodes import Binary, Call, Choice, Expr, Name, Node, SizeSet, Unary, Value
from kvplan.dsl.text.diagnostics import DslError, listed

LONGEST = 240


@dataclass(frozen=True, slots=True)
class ForeignValues:
    """Foreign values by name. Those that come from others have their `origins`, those to be doubted `doubts`."""

    values: Mapping[str, object]
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """What an expression comes to. `sources` are the names that the value was taken from.

    Without a value, `doubt` says why, and `absent` whether it asks for what is not there; with one, what it rests on
    besides facts.
    """

    value: Value | None
    doubt: str = ""
    sources: tuple[str, ...] = ()
    absent: bool = False

    def giving(self, value: Value) -> Answer:
        return replace(self, value=value)

    def refused(self, reason: str) -> Answer:
        return replace(self, value=None, doubt=reason)


def ask(expr: Expr, facts: ForeignValues) -> Answer:
    """What `expr` comes to. What cannot be worked out, for whatever reason, is an answer without a value."""
    try:
        return _answer(expr, facts, {**facts.values, ASSUMING: False})
    except DslError as error:
        if not absent(error):
            return _refused(error, expr, facts)
    try:
        return _assumed(_answer(expr, facts, {**facts.values, ASSUMING: True}), expr)
    except DslError as error:
        return _none(expr, facts) if absent(error) else _refused(error, expr, facts)


def _refused(error: DslError, expr: Expr, facts: ForeignValues) -> Answer:
    return Answer(None, shortened(error.diagnostics[0].message), _asked(expr, facts))


def shortened(text: str) -> str:
    """A text of which foreign values may be a part, on one line and of a length that people read."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]}…"


def _answer(expr: Expr, facts: ForeignValues, env: Mapping[str, object]) -> Answer:
    value = evaluate(expr, env)
    if isinstance(value, SizeSet):
        return Answer(None, "it is a set of sizes")
    sources = tuple(dict.fromkeys(sources_of(expr.tree, env)))
    doubts = dict.fromkeys(facts.doubts[name] for name in sources if name in facts.doubts)
    origins = dict.fromkeys(origin for name in sources for origin in facts.origins.get(name, (name,)))
    return Answer(value, "; ".join(doubts), tuple(origins))


def _assumed(answer: Answer, expr: Expr) -> Answer:
    said = f"{answer.value} is assumed: nothing says it"
    return replace(answer, doubt="; ".join(dict.fromkeys([said, *answer.doubt.split("; ")])).rstrip("; "))


def _none(expr: Expr, facts: ForeignValues) -> Answer:
    asked = _asked(expr, facts)
    return Answer(None, f"nothing says it; looked for {listed(asked, 'and')}", asked, absent=True)


def _asked(expr: Expr, facts: ForeignValues) -> tuple[str, ...]:
    return tuple(sorted({origin for name in names(expr) for origin in facts.origins.get(name, (name,))}))


def sources_of(node: Node, env: Mapping[str, object]) -> list[str]:
    """The names that a value was taken from: those of the branch and of the alternative that was chosen."""
    match node:
        case Name():
            return [node.id]
        case Choice():
            return sources_of(node.then if _holds(node.test, env) else node.other, env)
        case Call(function="has"):
            return []
        case Call(function="first"):
            return sources_of(next((arg for arg in node.args if _there(arg, env)), node.args[-1]), env)
        case Call():
            return [name for arg in node.args for name in sources_of(arg, env)]
        case Unary():
            return sources_of(node.value, env)
        case Binary():
            return sources_of(node.left, env) + sources_of(node.right, env)
    return []


def _holds(node: Node, env: Mapping[str, object]) -> bool:
    return bool(evaluate(Expr("", node, node.span), env))


def _there(node: Node, env: Mapping[str, object]) -> bool:
    return bool(evaluate(Expr("", Call("has", (node,), node.span), node.span), env))
