"""Asking a release: what it is asked for, what came and went, which keys may be filled in. No engine runs here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.conformance import facts
from tests.conformance.corpus import Configuration, configurations
from tests.conformance.environment import DUMPS
from tests.conformance.facts import FEW, ORDERS, VARIANTS, came_and_went, line_of, requests

KNOWN = [Configuration(key, name, "by hand", {"n": key}) for key, name in (("a1", "A"), ("a2", "A"), ("b", "B"))]


def script(name: str) -> ModuleType:
    """A script of examples/dumps, which nothing of an engine is needed to load."""
    spec = importlib.util.spec_from_file_location(name, DUMPS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


CONFIGS = script("vllm_configs")


def test_one_configuration_of_an_architecture_is_asked_for_in_all_orders() -> None:
    asked = {request["key"]: (request["orders"], request["variants"]) for request in requests(KNOWN)}
    assert asked == {"a1": (ORDERS, VARIANTS), "a2": (FEW, ()), "b": (ORDERS, VARIANTS)}


def test_architectures_that_came_and_went_are_told() -> None:
    known = {found.key: found for found in [*KNOWN, Configuration("d", "D", "of another engine", {})]}
    told = came_and_went(known, {"architectures": {"A": "text", "C": "text"}}, ("a1", "b"))
    assert told == {"new": ["C"], "removed": ["B"]}


def test_defaults_of_new_architectures_come_after_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = {"A": {"n": 1}, "B": {"n": 2}}
    path = tmp_path / "defaults.jsonl"
    monkeypatch.setattr(facts, "DEFAULTS", path)
    facts.add_defaults(["C"], defaults, "vllm 1.0")
    assert not path.exists()
    facts.add_defaults(["A"], defaults, "vllm 1.0")
    facts.add_defaults(["B", "C"], defaults, "vllm 1.0")
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["defaults--A", "defaults--B"]


def test_a_line_has_the_first_reason_if_there_is_no_dump() -> None:
    answers = [{"key": "a", "order": order, "error": f"no {order}"} for order in FEW]
    assert json.loads(line_of("a", answers)) == {"key": "a", "none": f"no {FEW[0]}"}


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("'XConfig' object has no attribute 'norm_eps'", {"norm_eps": 1e-5}),
        ("'XConfig' object has no attribute 'route_norm'", {"route_norm": False}),
        ("'XConfig' object has no attribute 'mm_hidden_size'", {"mm_hidden_size": 64}),
        ("'XConfig' object has no attribute 'sliding_window'", {}),
        ("'XConfig' object has no attribute 'num_key_value_heads'", {}),
        ("'Layer' object has no attribute 'norm_eps'", {}),
    ],
)
def test_keys_that_say_what_caches_are_are_never_guessed(text: str, more: dict[str, object]) -> None:
    assert CONFIGS.usual(AttributeError(text)) == more


def test_only_widths_that_no_cache_depends_on_become_smaller() -> None:
    config = {"vocab_size": 9999, "hidden_size": 64, "text_config": {"intermediate_size": 999, "head_dim": 8}}
    assert CONFIGS.narrowed(config) == {
        "vocab_size": 512, "hidden_size": 64, "text_config": {"intermediate_size": 128, "head_dim": 8},
    }  # fmt: skip


def test_a_configuration_inside_another_is_filled_too() -> None:
    assert CONFIGS.filled({"a": 1, "text_config": {"b": 2}}, {"b": 0}) == {"a": 1, "b": 0, "text_config": {"b": 2}}


@pytest.mark.parametrize(
    ("pools", "error", "kept"), [([{}], "", True), ([], "ValueError: no", True), ([], facts.NO_CLASS, False)]
)
def test_what_sglang_has_no_class_for_is_no_fact_of_it(pools: list[object], error: str, kept: bool) -> None:
    assert facts.served({"pools": pools, "error": error}) is kept


def test_an_engine_is_asked_for_each_architecture_and_each_model_that_comes_with_kvplan() -> None:
    known = configurations()
    lists = facts.in_turn(known, ())
    assert all(0 < len(own) <= facts.MOST for own in lists)
    shipped = sorted(key for key in known if key.startswith(facts.SHIPPED))
    assert sorted(own[0].key for own in lists if own[0].key.startswith(facts.SHIPPED)) == shipped
    others = [own[0].architecture for own in lists if not own[0].key.startswith(facts.SHIPPED)]
    assert len(others) == len({*others})
    assert [[one.key for one in own] for own in facts.in_turn(known, shipped[:1])] == [shipped[:1]]


def test_an_architecture_is_asked_for_with_its_next_configuration_until_one_has_caches() -> None:
    rounds: list[list[str]] = []

    def ask(wanted: Sequence[Configuration]) -> list[dict[str, Any]]:
        rounds.append([one.key for one in wanted])
        return [{"key": key, "pools": [{}] if key in ("a2", "b") else [], "error": key} for key in rounds[-1]]

    a1, a2, b = KNOWN
    c1, c2 = (Configuration(key, "C", "by hand", {}) for key in ("c1", "c2"))
    found = facts.answered(ask, [[a1, a2], [b], [c1, c2]])
    assert rounds == [["a1", "b", "c1"], ["a2", "c2"]]
    assert {key: answer["error"] for key, answer in found.items()} == {"a2": "a2", "b": "b", "c1": "c1"}


def test_what_a_checkpoint_says_of_a_layer_has_attributes_and_is_json() -> None:
    said = [{"attention": {"no_op": False, "n_heads_in_group": 8}}, 5]
    layer, number = CONFIGS.inner(said)
    assert layer.attention.n_heads_in_group == 8
    assert not hasattr(layer, "ffn")
    assert json.loads(json.dumps([layer, number])) == said
