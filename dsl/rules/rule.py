"""Rules that find from foreign values which kind of cache there is, and with which parameters.

Kinds and families have rules for configurations of checkpoints, engines have rules for dumps of their caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.foreign import described
from kvplan.dsl.rules.answers import Answer, ForeignValues, ask, shortened
from kvplan.dsl.rules.params import checked
from kvplan.dsl.schema.config import CONFIG, OWN, WORDS, ConfigRules
from kvplan.dsl.schema.fields import LABEL, shown
from kvplan.dsl.schema.kind import NEEDS, RULE, Param, Rule
from kvplan.dsl.schema.shapes import FOREIGN, NameShape
from kvplan.dsl.text.diagnostics import Sink, fault, listed, nearest_or_all
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

# The name of a limit among parameters, `needs.window`, and what its values are.
LIMIT, TOKENS = "needs.", Param(type="int")
# A function from the name of a kind to its parameters. None, which it reports, if there is no such kind.
Params = Callable[[YamlScalar], Mapping[str, Param] | None]


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule that holds for some facts, with an answer for each parameter. `sources` are the keys by which it holds."""

    rule: Rule
    params: Mapping[str, Answer]
    sources: tuple[str, ...] = ()


def lacking(params: Mapping[str, Param], answers: Mapping[str, Answer]) -> Iterator[tuple[str, str]]:
    """The parameters that need a value and have none, and why."""
    for name in (name for name, param in params.items() if param.default is None):
        if name not in answers or answers[name].value is None:
            yield name, answers[name].doubt if name in answers else "no rule says where it stands"


def parse_rules(sink: Sink, tree: Tree | None, what: str, params_of: Params, kind: str = "") -> tuple[Rule, ...]:
    """The rules in a mapping or a list of mappings. All are about `kind`; without it each names its own.

    Reports K001, K003, K008 and errors of expressions.
    """
    items = tree.items if isinstance(tree, YamlList) else (tree,) if tree is not None else ()
    rules = [_rule(sink, item, what, params_of, kind) for item in items]
    return tuple(rule for rule in rules if rule is not None)


def _rule(sink: Sink, tree: Tree, what: str, params_of: Params, kind: str) -> Rule | None:
    if not isinstance(tree, YamlTable):
        sink.add("K003", f"{what} must be a mapping or a list of mappings, not {shown(tree)}", tree.span)
        return None
    about = YamlScalar(kind, tree.span) if kind else NameShape("kind").read(sink, tree.get("kind"), "kind")
    if not about:
        sink.add("K002", f"{what} lacks 'kind'", tree.span)
        return None
    params = params_of(about)
    if params is None:
        return None
    keys = RULE.read(sink, tree, what, (*(() if kind else ("kind",)), *params))
    exprs = {
        name: checked(sink, params[name], FOREIGN.read(sink, keys.given[name], f"'{name}'"))
        for name in params
        if name in keys.given
    }
    good = {name: expr for name, expr in exprs.items() if expr is not None}
    for limit in (limit for limit in keys.needs if limit not in NEEDS.known):
        sink.add("K001", f"unknown limit '{limit}' of needs", limit.span, help=nearest_or_all(limit, NEEDS.known))
    if (name := keys.word("name")) is not None and not LABEL.fullmatch(name):
        sink.add("K009", f"'{name}' cannot be the name of a cache", name.span, help="letters, digits, -, _ and .")
    return replace(keys, kind=about, name=keys.name or about, params=good)


def first(rules: Iterable[Rule], facts: ForeignValues) -> tuple[Rule | None, tuple[str, ...]]:
    """The first rule that holds, None if none does, and the warnings of `judged` as sentences."""
    rule, doubts = judged(rules, facts)
    return rule, tuple(f"{name}: {doubt}" if name else doubt for name, doubt in doubts)


def judged(rules: Iterable[Rule], facts: ForeignValues) -> tuple[Rule | None, tuple[tuple[str, str], ...]]:
    """The first rule that holds, or None; and warnings (name, doubt), with the name of a rule without an answer."""
    doubts: list[tuple[str, str]] = []
    for rule in rules:
        answer = ask(rule.when, facts) if rule.when else Answer(True)
        name = rule.name if answer.value is None else ""
        doubts += [(name, answer.doubt)] if answer.doubt and not answer.absent else []
        if answer.value:
            return rule, tuple(doubts)
    return None, tuple(doubts)


def apply(rule: Rule, facts: ForeignValues, params: Mapping[str, Param]) -> RuleMatch:
    """The match of a rule with `facts`. An answer whose value its parameter cannot have loses the value."""
    answers = {name: _fitting(ask(expr, facts), params[name]) for name, expr in rule.params.items()}
    answers |= {f"{LIMIT}{name}": _fitting(ask(expr, facts), TOKENS) for name, expr in rule.needs.items()}
    return RuleMatch(rule, answers, ask(rule.when, facts).sources if rule.when else ())


def _fitting(answer: Answer, param: Param) -> Answer:
    """The answer, with words as layout files write them; without a value if that has the wrong type."""
    value = answer.value
    if param.type == "dtype" and isinstance(value, str) and dtypes.canonical(value) in dtypes.SIZES:
        return answer.giving(dtypes.canonical(value))
    word = isinstance(value, str) and (not param.values or value in param.values)
    number = isinstance(value, int) and not isinstance(value, bool)
    if value is None or (number if param.type == "int" else word and param.type == "name"):
        return answer
    about = f"{listed(answer.sources, 'and')}: " if answer.sources else ""
    return answer.refused(shortened(f"{about}expected {_expected(param)}, not {described(value)}"))


def _expected(param: Param) -> str:
    if param.type == "int":
        return "a whole number"
    return listed(param.values) if param.type == "name" and param.values else f"a {param.type}"


def parse_reading(sink: Sink, root: YamlTable) -> ConfigRules:
    """The rules of a config file, with every error in the sink."""
    keys = CONFIG.read(sink, root)
    return replace(keys, words=tuple(WORDS.read(sink, keys.written("words"), "words").items()))


def parse_own(sink: Sink, tree: Tree | None, params_of: Params) -> ConfigRules:
    """The rules under `config` in a model file."""
    keys = OWN.read(sink, tree)
    rules: tuple[Rule, ...] = ()
    for cache, given in keys.caches.items():
        own = parse_rules(sink, given, f"cache '{cache}' of config", params_of)
        for rule in own:
            _check_required(sink, rule, cache, params_of(YamlScalar(rule.kind, cache.span)) or {})
        rules += tuple(replace(rule, name=cache, tree=cache) for rule in own)
    return ConfigRules(words=tuple(keys.words.items()), remarks=keys.remarks, caches=rules, no_effect=keys.no_effect)


def _check_required(sink: Sink, rule: Rule, cache: YamlScalar, params: Mapping[str, Param]) -> None:
    """Report parameters without a default that a rule does not give (K002)."""
    if lacking := [name for name, param in params.items() if param.default is None and name not in rule.params]:
        help = f"add {', '.join(f'{name}: …' for name in lacking)}"
        sink.add("K002", f"cache '{cache}' of config lacks {listed(lacking, 'and')}", cache.span, help=help)


def over(general: ConfigRules, own: ConfigRules) -> ConfigRules:
    """Both sets of rules. A model's own rules come first; each of its words comes as early as possible: after words of
    that name, and after the words that it uses.

    Raises DslError (E007) for a word that uses a word which depends on it, and so would be evaluated before it.
    """
    words = general.words
    for name, expr in own.words:
        used = expr.names | {name}
        at = max((place for place, (other, _) in enumerate(words, 1) if other in used), default=0)
        if early := next((other for other, user in words[:at] if other != name and name in user.names), ""):
            last = words[at - 1][0]
            after = "" if last == early else f", which comes after '{early}'"
            message, help = (
                f"'{name}' uses '{last}'{after}, which uses '{name}'",
                f"use no word that depends on '{name}'",
            )
            raise fault("E007", message, expr.tree.span, help=help)
        words = (*words[:at], (name, expr), *words[at:])
    remarks, caches = (*general.remarks, *own.remarks), (*own.caches, *general.caches)
    return replace(general, words=words, remarks=remarks, caches=caches, no_effect=(*general.no_effect, *own.no_effect))
