"""What is known of something foreign, and what an expression over it comes to: a value, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from kvplan.dsl.lang.evaluate import evaluated, several
from kvplan.dsl.lang.foreign import ASSUMING, UnusableValue, WrongTypeError, absent
from kvplan.dsl.lang.nodes import Binary, Call, Choice, Expr, Name, Node, SizeSet, Unary, Value, used
from kvplan.dsl.text.diagnostics import DslError, listed

LONGEST = 240
UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class ForeignValues:
    """Foreign values by name. Those that come from others have their `origins`, those to be doubted `doubts`.

    `disputed` are those that are spelled in several ways which say different things, `usual` those that nobody gave:
    they dispute nothing that is given. `answered` has the answers that were worked out so far, also from the facts that
    these were made of: most layers of a model ask the same of the same values.
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
    """What an expression comes to. `sources` are the names that the value was taken from.

    Without a value, `doubt` says why, and `absent` whether it asks for what is not there; with one, what it rests on
    besides facts, and `disputed` whether spellings of one fact contradict each other. `named`: the doubt begins with
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
    """What `expr` comes to. What cannot be worked out, for whatever reason, is an answer without a value."""
    values = [facts.values.get(name, UNKNOWN) for name in expr.names]
    # All that the answer depends on.
    key = (
        id(expr),
        *map(type, values),
        *(value if isinstance(value, str | int | float) else id(value) for value in values),
        *map(facts.origins.get, expr.names),
        *map(facts.doubts.get, expr.names),
        *map(facts.disputed.__contains__, expr.names),
    )
    if key not in facts.answered:
        # What the key names by its identity is kept beside the answer: nothing else can take the identity.
        facts.answered[key] = _worked_out(expr, facts), (expr, values)
    return facts.answered[key][0]


def _worked_out(expr: Expr, facts: ForeignValues) -> Answer:
    try:
        return _answer(expr, facts, {**facts.values, ASSUMING: False})
    except DslError as error:
        if not absent(error):
            return _refused(error, expr, facts, False)
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
    """The keys whose value has the wrong type, if that is the error."""
    reached = _reached(error.node, env) if isinstance(error, WrongTypeError) else ()
    return _origins((name.id for name in reached if isinstance(name, Name)), facts)


def shortened(text: str) -> str:
    """A text of which foreign values may be a part, on one line and of a length that people read."""
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
    """The names that would have said what is assumed, in words."""
    names = [name for name in _asked(expr, facts) if name not in facts]
    return f"nothing gives {listed(names)}" if names else "nothing says it"


def _asked(expr: Expr, facts: ForeignValues) -> tuple[str, ...]:
    return tuple(sorted({origin for name in expr.names for origin in facts.origins.get(name, (name,))}))


def _reached(node: Node, env: Mapping[str, object]) -> Iterator[Name | Call]:
    """The names, and the calls of `agreed`, that a value was taken from: those of what was chosen alone, or, where that
    is a constant, those of the condition that chose it."""
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
    """What the spellings of one fact say, if not the same: 'a says 3, b and c say 4'."""
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
    """What one spelling says: a value, a sentence if its value cannot be used, None if it is absent."""
    try:
        return evaluated(node, env)
    except DslError as error:
        return None if absent(error) else f"what cannot be used ({error.diagnostics[0].message})"


def _holds(node: Node, env: Mapping[str, object]) -> bool:
    return bool(evaluated(node, env))


def _there(node: Node, env: Mapping[str, object]) -> bool:
    return bool(evaluated(Call("has", (node,), node.span), env))


def with_words(facts: ForeignValues, words: Iterable[tuple[str, Expr]], lists: bool = False) -> ForeignValues:
    """`facts` with what words come to, each over the facts and the words before it; `lists`: they may be lists, too.

    One that is there and cannot be worked out says so where it is asked for.
    """
    values, origins, doubts, disputed = {**facts.values}, {**facts.origins}, {**facts.doubts}, {*facts.disputed}
    # Grows with them until all words are known: a copy for each word took a third of the time.
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
    """A word that cannot be worked out; its name is shown unless the doubt names keys or another word."""
    known = named or any(
        isinstance(value, UnusableValue) and value.named and value.reason == doubt for value in facts.values.values()
    )
    return UnusableValue("T001", doubt if known else f"{name}: {doubt}", named=True)
