"""Evaluate expressions over foreign values: the answer is a value with its sources, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from kvplan.dsl.lang.evaluate import evaluated, several
from kvplan.dsl.lang.foreign import ASSUMES, ASSUMING, UnusableValue, WrongTypeError, absent
from kvplan.dsl.lang.nodes import Binary, Call, Choice, Expr, Name, Node, SizeSet, Unary, Value, used
from kvplan.dsl.text.diagnostics import DslError, listed

LONGEST = 240
UNKNOWN = object()
# A tuple, because `str | int | float` in a call would be made at each call.
PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True)
class ForeignValues:
    """Foreign values by name. Derived ones have `origins`, the names they come from, uncertain ones have `doubts`.

    `disputed` names have several spellings that contradict each other. `usual` names have defaults: these never dispute
    a given value. `answered` caches answers, shared with the facts that these were derived from, because most layers of
    a model ask the same of the same values.
    """

    values: Mapping[str, object]
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    disputed: Set[str] = frozenset()
    usual: frozenset[str] = frozenset()
    answered: dict[tuple[object, ...], tuple[Answer, object]] = field(default_factory=dict, repr=False, compare=False)

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an expression. `sources` are the names that the value was taken from.

    Without a value, `doubt` is the reason, and `absent` says whether something is missing. With a value, `doubt` says
    what it assumes, and `disputed` whether spellings of one fact contradict each other. `named`: the doubt begins with
    the keys that it is about.
    """

    value: Value | None
    doubt: str = ""
    sources: tuple[str, ...] = ()
    absent: bool = False
    disputed: bool = False
    named: bool = False

    def giving(self, value: Value) -> Answer:
        return replace(self, value=value)

    def refused(self, reason: str) -> Answer:
        return replace(self, value=None, doubt=reason)


def ask(expr: Expr, facts: ForeignValues) -> Answer:
    """The answer to `expr`. If it cannot be evaluated, for any reason, the answer has no value."""
    values = [facts.values.get(name, UNKNOWN) for name in expr.names]
    # Everything that the answer depends on.
    key = (
        id(expr),
        *map(type, values),
        *[value if isinstance(value, PLAIN) else id(value) for value in values],
        *map(facts.origins.get, expr.names),
        *map(facts.doubts.get, expr.names),
        *map(facts.disputed.__contains__, expr.names),
    )
    if key not in facts.answered:
        # The key has ids of objects. They are kept beside the answer, so that no other object can get such an id.
        facts.answered[key] = _worked_out(expr, facts), (expr, values)
    return facts.answered[key][0]


def _worked_out(expr: Expr, facts: ForeignValues) -> Answer:
    try:
        return _answer(expr, facts, {**facts.values, ASSUMING: False})
    except DslError as error:
        if not absent(error):
            return _refused(error, expr, facts, False)
    if ASSUMES not in expr.functions:
        return _none(expr, facts)
    try:
        answer = _answer(expr, facts, {**facts.values, ASSUMING: True})
        doubt = f"{answer.value} is assumed: {_lacking(expr, facts)}"
        return replace(answer, doubt="; ".join(dict.fromkeys([doubt, *answer.doubt.split("; ")])).rstrip("; "))
    except DslError as error:
        return _none(expr, facts) if absent(error) else _refused(error, expr, facts, True)


def _refused(error: DslError, expr: Expr, facts: ForeignValues, assuming: bool) -> Answer:
    keys, message = _at_fault(error, facts, {**facts.values, ASSUMING: assuming}), error.diagnostics[0].message
    doubt = f"{listed(keys, 'and')}: {message}" if keys else message
    return Answer(None, shortened(doubt), _asked(expr, facts), named=bool(keys))


def _at_fault(error: DslError, facts: ForeignValues, env: Mapping[str, object]) -> tuple[str, ...]:
    """The keys whose value has the wrong type; empty for other errors."""
    reached = _reached(error.node, env) if isinstance(error, WrongTypeError) else ()
    return _origins((name.id for name in reached if isinstance(name, Name)), facts)


def shortened(text: str) -> str:
    """A text that may contain foreign values, on one line and cut to LONGEST characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]}…"


def _answer(expr: Expr, facts: ForeignValues, env: Mapping[str, object]) -> Answer:
    value = evaluated(expr.tree, env)
    if isinstance(value, SizeSet):
        return Answer(None, "it is a set of sizes")
    reached = tuple(_reached(expr.tree, env))
    sources = tuple(dict.fromkeys(node.id for node in reached if isinstance(node, Name)))
    disputes = [text for node in reached if isinstance(node, Call) and (text := _disagreement(node, facts, env))]
    doubts = dict.fromkeys([*filter(None, map(facts.doubts.get, sources)), *disputes])
    disputed = bool(disputes) or not facts.disputed.isdisjoint(sources)
    return Answer(value, "; ".join(doubts), _origins(sources, facts), disputed=disputed)


def _origins(names: Iterable[str], facts: ForeignValues) -> tuple[str, ...]:
    return tuple(dict.fromkeys(origin for name in names for origin in facts.origins.get(name, (name,))))


def _none(expr: Expr, facts: ForeignValues) -> Answer:
    asked = _asked(expr, facts)
    return Answer(None, f"nothing says it; looked for {listed(asked, 'and')}", asked, absent=True)


def _lacking(expr: Expr, facts: ForeignValues) -> str:
    """The reason for an assumption, in words: the names that have no value."""
    names = [name for name in _asked(expr, facts) if name not in facts]
    return f"nothing gives {listed(names)}" if names else "nothing says it"


def _asked(expr: Expr, facts: ForeignValues) -> tuple[str, ...]:
    return tuple(sorted({origin for name in expr.names for origin in facts.origins.get(name, (name,))}))


def _reached(node: Node, env: Mapping[str, object]) -> Iterator[Name | Call]:
    """The names and calls of `agreed` that a value was taken from. A choice counts by its chosen part, or, if that is a
    constant, by its condition."""
    match node:
        case Name():
            yield node
        case Choice():
            chosen = tuple(_reached(node.then if _holds(node.test, env) else node.other, env))
            yield from chosen or _reached(node.test, env)
        case Call(function="has"):
            pass
        case Call(function="first" | "agreed"):
            yield from (node,) if node.function == "agreed" else ()
            yield from _reached(next((arg for arg in node.args if _there(arg, env)), node.args[-1]), env)
        case Call():
            yield from (found for arg in node.args for found in _reached(arg, env))
        case Unary():
            yield from _reached(node.value, env)
        case Binary(op="and" | "or"):
            yield from _reached(node.left, env)
            yield from _reached(node.right, env) if _holds(node.left, env) is (node.op == "and") else ()
        case Binary():
            yield from (found for side in (node.left, node.right) for found in _reached(side, env))


def _disagreement(node: Call, facts: ForeignValues, env: Mapping[str, object]) -> str:
    """A sentence if the spellings of one fact differ, `a says 3, b and c say 4`; else empty."""
    said: dict[object, list[str]] = {}
    for arg in node.args:
        names = [name.id for name in used(arg) if name.id in env]
        if said and not facts.usual.isdisjoint(names):
            continue
        if (value := _spelled(arg, env)) is not None:
            said.setdefault(value, []).extend(_origins(names, facts))
    parts = [f"{listed(names, 'and')} {'say' if len(names) > 1 else 'says'} {value}" for value, names in said.items()]
    return f"{', '.join(parts)}: the first is used" if len(said) > 1 else ""


def _spelled(node: Node, env: Mapping[str, object]) -> object:
    """The value of one spelling; a sentence if it cannot be used, None if it is absent."""
    try:
        return evaluated(node, env)
    except DslError as error:
        return None if absent(error) else f"what cannot be used ({error.diagnostics[0].message})"


def _holds(node: Node, env: Mapping[str, object]) -> bool:
    return bool(evaluated(node, env))


def _there(node: Node, env: Mapping[str, object]) -> bool:
    return bool(evaluated(Call("has", (node,), node.span), env))


def with_words(facts: ForeignValues, words: Iterable[tuple[str, Expr]], lists: bool = False) -> ForeignValues:
    """`facts` with the values of words. Each may use the facts and the words before it; with `lists` it may be a list.

    A word that cannot be evaluated becomes an UnusableValue, which raises its error when it is used.
    """
    values, origins, doubts, disputed = {**facts.values}, {**facts.origins}, {**facts.doubts}, {*facts.disputed}
    # Updated in place for each word: copies took a third of the time.
    known = replace(facts, values=values, origins=origins, doubts=doubts, disputed=disputed)
    for name, expr in words:
        answer = ask(expr, known)
        value: object = several(expr, values) if lists and answer.value is None else answer.value
        if value is None and answer.absent:
            origins.setdefault(name, answer.sources)
            continue
        doubt = answer.doubt if value is None or answer.value is not None else ""
        values[name] = _unusable(known, name, doubt, answer.named) if value is None else value
        origins[name], doubts[name] = answer.sources, doubt
        (disputed.add if answer.disputed else disputed.discard)(name)
    return known


def _unusable(facts: ForeignValues, name: str, doubt: str, named: bool) -> UnusableValue:
    """The value of a word that cannot be evaluated. Its name is shown unless the doubt names keys or another word."""
    known = named or any(
        isinstance(value, UnusableValue) and value.named and value.reason == doubt for value in facts.values.values()
    )
    return UnusableValue("T001", doubt if known else f"{name}: {doubt}", named=True)
