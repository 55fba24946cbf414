"""Rules over foreign values: their functions, what they rest on, and that nothing foreign is ever an exception."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest

from kvplan.dsl.files.documents import params_of
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.foreign import UnusableValue
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.lang.functions import EVERY
from kvplan.dsl.lang.functions import FOREIGN_ARITY as ARITY
from kvplan.dsl.library import load
from kvplan.dsl.rules.answers import ForeignValues, ask, with_words
from kvplan.dsl.rules.rule import RuleMatch, apply, first, lacking, over, parse_own, parse_rules
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.schema.kind import Rule
from kvplan.dsl.text.diagnostics import DslError, Sink, ranges
from kvplan.dsl.text.yaml_reader import read_text

FACTS: Mapping[str, object] = {
    "n": 4, "word": "M-E*", "yes": True, "none": None, "half": 0.5, "list": (1, "x", None, True),
    "numbers": (5, None, 7), "words": ("a", "b"),
    "map": {"k": 3, "l": (7,)},
    "turns": {"05": 1, "11": 2, "x": 3, "²": 4, "9" * 99: 5},
    "huge": UnusableValue("B002", "the number is too large"),
}  # fmt: skip


def choose(rules: Iterable[Rule], values: Mapping[str, object]) -> RuleMatch | None:
    """The first rule that holds for `values`, applied."""
    facts = ForeignValues(values)
    rule, _ = first(rules, facts)
    return apply(rule, facts, KINDS[rule.kind].params) if rule else None


def worth(text: str, facts: Mapping[str, object] = FACTS) -> object:
    return evaluate(parse_expr(text, functions=EVERY), facts)


def code(text: str) -> str:
    with pytest.raises(DslError) as error:
        worth(text)
    return error.value.diagnostics[0].code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("at(list, 0)", 1),
        ("at(list, 1) == 'x'", True),
        ("at(letters(word), 3)", "*"),
        ("at(letters(words), 1)", "b"),
        ("letters(n)", 4),
        ("at(map, 'k') + 1", 4),
        ("at(at(map, 'l'), 0)", 7),
        ("at(turns, 5) + at(turns, 11)", 3),
        ("has(at(turns, 1)) or has(at(turns, 0))", False),
        ("len(list) + len(letters(word)) + len(map)", 10),
        ("count(letters(word), 'M')", 1),
        ("count(numbers, 7)", 1),
        ("place(letters(word), '*')", 3),
        ("place(words, 'a') if has(place(numbers, 9)) else place(numbers, 7)", 2),
        ("has(list(word)) or has(list(n)) or has(list(map))", False),
        ("len(list(words))", 2),
        ("has(n)", True),
        ("has(none) or has(missing)", False),
        ("has(n, word) and not has(n, missing)", True),
        ("has(at(list, 2))", False),
        ("has(at(map, 'q'))", False),
        ("has(missing + 1)", False),
        ("first(missing, none, at(list, 2), n)", 4),
        ("first(first(missing, none), at(map, 'q'), 'end')", "end"),
        ("agreed(missing, none, n, at(map, 'k'))", 4),
        ("first(number(word), number(yes), number(list), number(half), number(n))", 4),
        ("among(n, 'auto', 4)", True),
        ("among(n, '4', true)", False),
        ("first(missing, assumed(3)) if has(missing) else n", 4),
    ],
)
def test_functions(text: str, value: object) -> None:
    assert worth(text) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("missing", "E005"), ("none", "E026"), ("none + 1", "E026"), ("at(list, 2)", "E026"), ("at(map, 'q')", "E026"),
        ("assumed(3)", "E026"), ("first(missing, none)", "E026"), ("at(list, 4)", "B007"), ("at(list, 0 - 1)", "B007"),
        ("at(letters(word), 9)", "B007"), ("first(at(list, 9), 3)", "B007"), ("has(at(list, 9))", "B007"),
        ("half", "T001"),
        ("half + 1", "T001"), ("list", "T001"), ("map", "T001"), ("at(map, true)", "T001"), ("at(list, 'x')", "T001"),
        ("at(list, true)", "T001"), ("len(n)", "T001"), ("at(n, 0)", "T001"), ("count(n, 1)", "T001"),
        ("place(n, 1)", "T001"), ("place(numbers, 9)", "E026"), ("at(word, 0)", "T001"), ("len(word)", "T001"),
        ("count(word, 'M')", "T001"), ("count(words, 1)", "T001"), ("place(numbers, '5')", "T001"),
        ("count(list, 1)", "T001"), ("huge", "B002"),
        ("has(huge)", "B002"), ("first(huge, 1)", "B002"), ("number(word)", "E026"), ("agreed(missing, none)", "E026"),
        ("agreed(huge, 1)", "B002"), ("number(huge)", "B002"),
    ],
)  # fmt: skip
def test_faults(text: str, fault: str) -> None:
    assert code(text) == fault


@pytest.mark.parametrize("function", sorted(ARITY))
def test_no_function_of_foreign_values_elsewhere(function: str) -> None:
    args = ", ".join("x" for _ in range(ARITY[function][0]))
    with pytest.raises(DslError, match="E025"):
        parse_expr(f"{function}({args})")
    assert parse_expr(f"{function}({args})", functions=EVERY).text == f"{function}({args})"


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("agreed(n, at(map, 'k') + 1)", ""),
        ("agreed(n, missing, none, assumed(9))", ""),
        ("agreed(n, at(map, 'k'))", "n says 4, map says 3: the first is used"),
        ("agreed(n, 7 if yes else n)", "n says 4, yes and n say 7: the first is used"),
        (
            "agreed(n, len(letters(word)) + n, 8, at(map, 'k') + 5)",
            "n says 4, word, n and map say 8: the first is used",
        ),
        (
            "agreed(n, len(half))",
            "n says 4, half says what cannot be used (expected a list or a mapping, not the fraction 0.5): "
            "the first is used",
        ),
        ("n if yes else agreed(n, 5)", ""),
        ("first(n, agreed(1, 2))", ""),
        ("1 + agreed(n, at(map, 'k'))", "n says 4, map says 3: the first is used"),
    ],
)
def test_spellings_that_say_different_things_are_named(text: str, doubt: str) -> None:
    answer = ask(parse_expr(text, functions=EVERY), ForeignValues(FACTS))
    assert (answer.doubt, answer.disputed) == (doubt, bool(doubt))


def test_a_word_keeps_what_is_disputed_until_another_replaces_it() -> None:
    words = [(name, parse_expr(text, functions=EVERY)) for name, text in (("w", "agreed(n, 3)"), ("v", "w + 1"))]
    facts = with_words(ForeignValues(FACTS), words)
    assert facts.disputed == {"w", "v"}
    assert ask(parse_expr("v * 2"), facts).disputed
    again = with_words(facts, [("w", parse_expr("3"))])
    assert again.disputed == {"v"}
    assert ask(parse_expr("w"), again).doubt == ""


def test_no_function_of_foreign_values_in_storage() -> None:
    from kvplan.dsl.lang.storage import parse_items
    from kvplan.dsl.text.source import inline

    with pytest.raises(DslError, match="E025"):
        parse_items("block { pad(len(x)) }", inline("block { pad(len(x)) }"), True)


def test_an_answer_says_what_it_is_from() -> None:
    answer = ask(parse_expr("first(missing, n) * 2 if has(word) else half", functions=EVERY), ForeignValues(FACTS))
    assert (answer.value, answer.sources, answer.doubt) == (8, ("n",), "")


def test_an_answer_says_what_was_assumed() -> None:
    answer = ask(parse_expr("first(missing, assumed(3)) + n", functions=EVERY), ForeignValues(FACTS))
    assert (answer.value, answer.sources) == (7, ("n",))
    assert "assumed" in answer.doubt
    assert not ask(parse_expr("first(n, assumed(3))", functions=EVERY), ForeignValues(FACTS)).doubt


def test_an_answer_says_what_was_looked_for() -> None:
    answer = ask(parse_expr("first(missing, none)", functions=EVERY), ForeignValues(FACTS))
    assert (answer.value, answer.absent) == (None, True)
    assert "missing and none" in answer.doubt


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("word + 1", "word: expected a number, not the text 'M-E*'"),
        ("n + first(missing, first(none, word))", "word: expected a number, not the text 'M-E*'"),
        ("at(word, 0)", "word: expected a list or a mapping, not the text 'M-E*'"),
        ("count(words, n)", "words: expected entries such as the number 4, not the text 'a'"),
        ("n == word", "n and word: the number 4 cannot be compared with the text 'M-E*'"),
        ("not half", "half: expected a condition, not the fraction 0.5"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_its_key(text: str, doubt: str) -> None:
    answer = ask(parse_expr(text, functions=EVERY), ForeignValues(FACTS))
    assert (answer.value, answer.absent, answer.doubt) == (None, False, doubt)
    facts = with_words(ForeignValues(FACTS), [("w", parse_expr(text, functions=EVERY))])
    assert ask(parse_expr("w + 1"), facts).doubt == doubt


def test_what_is_not_reached_is_not_asked() -> None:
    answer = ask(parse_expr("n == 3 and (word if half else n)", functions=EVERY), ForeignValues(FACTS))
    assert (answer.value, answer.sources) == (False, ("n",))


def test_doubts_and_origins_go_on() -> None:
    facts = ForeignValues({"w": 3}, {"w": ("key",)}, {"w": "w is a guess"})
    answer = ask(parse_expr("w * 2", functions=EVERY), facts)
    assert (answer.value, answer.sources, answer.doubt) == (6, ("key",), "w is a guess")


KINDS = load().kinds
RULES = """
kvplan: 1
kind: x
match:
  - {name: windows, when: window > 0, heads: heads, dim: size, window: window}
  - {name: all, when: has(heads), heads: heads, dim: "first(size, 64)", dtype: type}
"""


def rules(text: str = RULES, kind: str = "gqa") -> tuple[tuple[Rule, ...], list[str]]:
    sink = Sink()
    tree = read_text(text, Path("x.yaml")).root.get("match")
    made = parse_rules(sink, tree, "match", partial(params_of, sink, KINDS), kind)
    return made, [d.code for d in sink.errors]


def known(found: RuleMatch) -> dict[str, object]:
    return {name: answer.value for name, answer in found.params.items() if answer.value is not None}


def test_the_first_rule_that_holds_is_applied() -> None:
    made, faults = rules()
    assert not faults
    found = choose(made, {"window": 8, "heads": 2, "size": 16})
    assert found
    assert (found.rule.name, known(found)) == ("windows", {"heads": 2, "dim": 16, "window": 8})
    assert not [*lacking(KINDS[found.rule.kind].params, found.params)]
    found = choose(made, {"heads": 2, "type": "bfloat16"})
    assert found
    assert (found.rule.name, known(found)) == ("all", {"heads": 2, "dim": 64, "dtype": "bf16"})
    assert choose(made, {"window": 0}) is None


def test_a_value_that_a_parameter_cannot_have_is_unknown() -> None:
    found = choose(rules()[0], {"heads": "8", "type": "float3", "size": True})
    assert found
    assert (known(found), {*found.params}) == ({}, {"heads", "dim", "dtype"})
    assert [name for name, _ in lacking(KINDS[found.rule.kind].params, found.params)] == ["heads", "dim"]


def test_a_rule_that_nobody_can_judge_does_not_hold() -> None:
    found = choose(rules()[0], {"window": "wide", "heads": 2})
    assert found
    assert found.rule.name == "all"


@pytest.mark.parametrize(
    ("match", "kind", "fault"),
    [
        ("{heds: heads}", "gqa", ["K001"]),
        ("[heads]", "gqa", ["K003"]),
        ("{when: [heads]}", "gqa", ["E023"]),
        ('{when: "at(x)"}', "gqa", ["E004"]),
        ('{when: "rank(3)"}', "gqa", ["E004"]),
        ("{when: att(x)}", "gqa", ["E003"]),
        ("{name: a b}", "gqa", ["K009"]),
        ("{dtype: 3}", "gqa", ["T003"]),
        ("{heads: heads}", "", ["K002"]),
        ("{kind: gpa, heads: heads}", "", ["K008"]),
        ("{kind: gqa, heads: heads}", "", []),
        ("{kind: gqa, heads: heads}", "gqa", ["K001"]),
    ],
)
def test_faults_of_rules(match: str, kind: str, fault: list[str]) -> None:
    assert rules(f"kvplan: 1\nkind: x\nmatch: {match}\n", kind)[1] == fault


def own(text: str) -> tuple[ConfigRules, list[str]]:
    sink = Sink()
    tree = read_text(f"kvplan: 1\nconfig: {text}\n", Path("x.yaml")).root.get("config")
    made = parse_own(sink, tree, partial(params_of, sink, KINDS))
    return made, [d.code for d in sink.errors]


def test_words_of_a_model_come_after_those_they_are_about() -> None:
    general = ConfigRules(
        words=tuple((name, parse_expr(text)) for name, text in [("a", "k"), ("b", "a + 1"), ("c", "b")])
    )
    mine, faults = own('{words: {b: "first(z, b)", z: k, y: b * 2}}')
    assert not faults
    assert [name for name, _ in over(general, mine).words] == ["z", "a", "b", "b", "y", "c"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[words]", ["K003"]),
        ("{wörds: {}}", ["K001"]),
        ("{words: {a-b: 1}}", ["K009"]),
        ("{words: {a: has}}", []),
        ("{caches: {a: {kind: none}}}", ["K008"]),
        ("{caches: {a: {kind: gqa, heds: 1}}}", ["K001", "K002"]),
        ("{caches: {a: {kind: gqa, heads: 1, dim: 8, needs: {whole: 2, windw: 1}}}}", ["K001"]),
        ("{remarks: [{when: n}]}", ["K002"]),
    ],
)
def test_faults_of_what_a_model_says(text: str, fault: list[str]) -> None:
    assert own(text)[1] == fault


def test_ranges() -> None:
    assert ranges([0, 1, 2, 3, 7, 9, 10]) == "0-3, 7, 9-10"


def test_json_as_foreign_values() -> None:
    found = parse_foreign('\ufeff{"a": [1, null, {"b": 1.5}], "c": 9223372036854775808, "d": -1}'.encode(), "x.json")
    assert found["a"] == (1, None, {"b": 1.5})
    assert isinstance(found["c"], UnusableValue)
    assert found["d"] == -1


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"3", b"null", b'{"a": }', b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 5_000, b'{"a": 1}x'],
    ids=lambda data: data[:8].decode("latin-1"),
)
def test_what_is_no_configuration(data: bytes) -> None:
    with pytest.raises(DslError, match="F001"):
        parse_foreign(data, "x.json")


def test_an_integer_of_any_length() -> None:
    assert isinstance(parse_foreign(b'{"a": ' + b"9" * 10_000 + b"}", "x.json")["a"], UnusableValue)


PIECES = ["n", "word", "none", "half", "list", "map", "huge", "missing", "'x'", "0", "7", "true"]
SHAPES = (
    "at({}, {})", "len({})", "agreed({}, {})", "number({})",
    "count({}, {})", "place({}, {})", "has({}, {})", "first({}, {})", "among({}, {})", "assumed({})",
    "({} + {})", "({} == {})", "({} if {} else {})", "({} and {})", "-{}", "bytes({})", "min({}, {})", "({} // {})",
)  # fmt: skip


def drawn(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(PIECES)
    shape = rng.choice(SHAPES)
    return shape.format(*(drawn(rng, depth - 1) for _ in range(shape.count("{}"))))


@pytest.mark.parametrize("seed", range(8))
def test_every_expression_over_anything_has_an_answer(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        text = drawn(rng, 4)
        answer = ask(parse_expr(text, functions=EVERY), ForeignValues(FACTS))
        assert isinstance(answer.value, bool | int | str) or (answer.value is None and answer.doubt), text
