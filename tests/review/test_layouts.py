"""The changes in layout files, key by key."""

from __future__ import annotations

import pytest

from kvplan.review.layouts import LayoutChange, layout_changes

MODEL = """kvplan: 1
model: family
title: A
caches:
  states: {kind: k, state: 128, layers: [0, 1]}
variants:
  small: {layers: 2}
  large: {layers: 4, -layers-note: a guess}
"""


def found(old: str, new: str) -> list[tuple[str, str | None, str | None]]:
    return [(one.key, one.before, one.after) for one in layout_changes({"a.yaml": old}, {"a.yaml": new})]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("state: 128", "state: 64", [("states.state", "128", "64")]),
        ("[0, 1]", "[0]", [("states.layers", "[0, 1]", "[0]")]),
        ("layers: 2", "layers: 3", [("variants.small.layers", "2", "3")]),
        ("state: 128, ", "", [("states.state", "128", None)]),
        ("kind: k,", "kind: k, conv: 4,", [("states.conv", None, "4")]),
        ("title: A", "title: B\ndoc: more", []),
        ("a guess", "sure", []),
        ("kind: k", "kind:   'k'", []),
    ],
)
def test_keys_that_count(old: str, new: str, expected: list[tuple[str, str | None, str | None]]) -> None:
    assert found(MODEL, MODEL.replace(old, new)) == expected


def test_a_change_knows_its_models() -> None:
    (change,) = layout_changes({"a.yaml": MODEL}, {"a.yaml": MODEL.replace("128", "64")})
    assert change == LayoutChange("a.yaml", "states.state", "128", "64", frozenset({"small", "large"}))


@pytest.mark.parametrize(("layers", "model"), [(2, "small"), (4, "large"), (8, "large.2")])
def test_a_change_of_a_variant_is_of_no_other_one(layers: int, model: str) -> None:
    text = MODEL + "  large.2: {layers: 8}\n"
    (change,) = layout_changes({"a.yaml": text}, {"a.yaml": text.replace(f"layers: {layers}", "layers: 6")})
    assert change.models == {model}


def test_a_change_is_of_models_that_extend_its_own_too() -> None:
    others = {"b.yaml": "model: b\nextends: small\n", "c.yaml": "model: c\nextends: b\n", "d.yaml": "model: d\n"}
    (change,) = layout_changes({"a.yaml": MODEL, **others}, {"a.yaml": MODEL.replace("128", "64"), **others})
    assert change.models == {"small", "large", "b", "c"}


def test_a_change_of_a_kind_with_variants_concerns_all_models() -> None:
    """A kind's variants are its records, and no models."""
    kind = "kvplan: 1\nkind: k\nneeds: {window: 8}\nvariants:\n  fp8: {when: wide}\n"
    (change,) = layout_changes({"k.yaml": kind}, {"k.yaml": kind.replace("8}", "4}")})
    assert change == LayoutChange("k.yaml", "needs.window", "8", "4")


KIND = {"k.yaml": "kind: k\nneeds: {window: 8}\n"}
OTHERS = {
    "with.yaml": "model: with\ncaches: {a: {kind: k}}\n",
    "heir.yaml": "model: heir\nextends: with\n",
    "narrow.yaml": "kind: narrow\nextends: k\n",
    "with-narrow.yaml": "model: with-narrow\ncaches: {a: {kind: narrow}}\n",
    "without.yaml": "model: without\ncaches: {a: {kind: other}}\n",
}


@pytest.mark.parametrize(("engine", "spared"), [("kinds: [other]", {"without"}), ("instead: {mla: k}", set())])
def test_a_change_of_a_kind_spares_models_without_it(engine: str, spared: set[str]) -> None:
    """Unless an engine may store other caches as this kind."""
    others = {**OTHERS, "e.yaml": f"engine: e\n{engine}\n"}
    (change,) = layout_changes({**KIND, **others}, {"k.yaml": KIND["k.yaml"].replace("8", "4"), **others})
    assert (change.models, change.spared) == (frozenset(), frozenset(spared))


def test_a_file_that_moves_is_compared_with_itself() -> None:
    (change,) = layout_changes({"a.yaml": MODEL}, {"b/a.yaml": MODEL.replace("128", "64")})
    assert (change.path, change.key, change.before, change.after) == ("b/a.yaml", "states.state", "128", "64")
    assert layout_changes({"a.yaml": MODEL}, {"b.yaml": MODEL}) == []


def test_a_file_that_is_new_or_removed_is_named_once() -> None:
    other = MODEL.replace("family", "other")
    said = [(one.path, one.key, one.before, one.after) for one in layout_changes({"a.yaml": MODEL}, {"b.yaml": other})]
    assert said == [("a.yaml", "model", "family", None), ("b.yaml", "model", None, "other")]


@pytest.mark.parametrize("word", ["machine", "deployment", "fleet"])
def test_a_file_moves_only_to_one_of_its_name(word: str) -> None:
    """Whatever it describes. A fleet names a model and a machine, too."""
    more = "models: 1\n" if word != "fleet" else "model: m\nmachine: h\n"
    old = {path: f"{word}: {path[0]}\n{more}" for path in ("a.yaml", "b.yaml")}
    new = {"x.yaml": old["b.yaml"], "y.yaml": f"{word}: c\n{more}", "z.yaml": MODEL}
    said = [(one.path, one.key, one.before, one.after) for one in layout_changes(old, new)]
    assert said == [("a.yaml", word, "a", None), ("y.yaml", word, None, "c"), ("z.yaml", "model", None, "family")]


def test_a_file_without_a_name_moves_nowhere() -> None:
    said = [(one.path, one.before, one.after) for one in layout_changes({"a.yaml": "x: 1\n"}, {"b.yaml": "x: 2\n"})]
    assert said == [("a.yaml", "1", None), ("b.yaml", None, "2")]


def test_a_file_moves_to_one_other() -> None:
    """The second file of a name is new."""
    changes = layout_changes({"a.yaml": MODEL}, {"b.yaml": MODEL, "c.yaml": MODEL.replace("128", "64")})
    assert [(one.path, one.key, one.before, one.after) for one in changes] == [("c.yaml", "model", None, "family")]


def test_a_unit_is_for_people() -> None:
    assert found("engine: e\noptions: {block: {}}\n", "engine: e\noptions: {block: {unit: tokens}}\n") == []


def test_other_names_and_doubts_of_a_kind_are_for_people() -> None:
    assert found("kind: k\n", "kind: k\nother_names: {kk: the full name of k}\n") == []
    assert found("kind: k\n", "kind: k\ndoubts: [{when: heads > 8, say: many heads}]\n") == []


ENGINES = {"one.yaml": "engine: one\ndefault: true\nn: 1\n", "two.yaml": "engine: two\nextends: one\nn: 1\n"}


@pytest.mark.parametrize(("name", "engines"), [("one.yaml", {"one", "two", ""}), ("two.yaml", {"two"})])
def test_a_change_knows_the_engines_that_it_is_for(name: str, engines: set[str]) -> None:
    """The file of an engine is for those that extend it, that of the default one for sides that name none."""
    (change,) = layout_changes(ENGINES, {**ENGINES, name: ENGINES[name].replace("n: 1", "n: 2")})
    assert change == LayoutChange(name, "n", "1", "2", engines=frozenset(engines))


def test_how_configurations_are_read_changes_no_plan() -> None:
    text = "config: one\nremarks: [{when: true, say: much}]\n"
    assert found(text, text.replace("much", "little")) == []
    assert found(MODEL + "config: {words: {a: b}}\n", MODEL.replace("128", "64")) == [("states.state", "128", "64")]


@pytest.mark.parametrize("text", ["", "{", "- a"])
def test_what_is_no_layout_is_new_or_gone(text: str) -> None:
    assert ("model", "family", None) in found(MODEL, text)
