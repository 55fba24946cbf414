"""Settings that both engines compare: the same text for the same rotation, however a configuration says it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.dsl.library import load
from kvplan.integrations.shared.facts import EngineFacts
from kvplan.integrations.shared.settings import LONGEST, ROTARY, rotary, settings

LAYOUTS = load()
YARN = {"factor": 4.0, "original_max_position_embeddings": 8192}
FACTS = EngineFacts("engine", "1", "cuda", "", "bf16", {}, {}, {})


def facts(tmp_path: Path, config: Any, **overrides: Any) -> EngineFacts:
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return replace(FACTS, config=str(path), overrides=overrides)


def side(key: str) -> Any:
    return bind(LAYOUTS, LAYOUTS.model("qwen3-0.6b"), key)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rope_theta": 10000}, {"rope_theta": 10000.0}),
        ({"rope_theta": 1e6, "rope_scaling": None},
         {"rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}}),
        ({"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2}},
         {"rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 2.0}}),
        ({"rope_theta": 1e6, "max_position_embeddings": 4096}, {"rope_theta": 1e6, "max_position_embeddings": 8192}),
        ({}, {"hidden_size": 5}),
    ],
)  # fmt: skip
def test_one_rotation_is_one_text(one: Any, other: Any) -> None:
    assert rotary(one) == rotary(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rope_theta": 10000}, {"rope_theta": 10001}),
        ({"rope_theta": 1e6}, {"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", **YARN}}),
        ({"rope_scaling": {"rope_type": "yarn", **YARN}}, {"rope_scaling": {"rope_type": "yarn", **YARN, "factor": 2}}),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}, "max_position_embeddings": 1},
         {"rope_scaling": {"rope_type": "yarn", "factor": 2}, "max_position_embeddings": 2}),
        ({"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0] * 64}},
         {"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0] * 63 + [2.0]}}),
        ({"rope_parameters": {"full": {"rope_theta": 1}, "sliding": {"rope_theta": 2}}},
         {"rope_parameters": {"full": {"rope_theta": 2}, "sliding": {"rope_theta": 1}}}),
        ({"partial_rotary_factor": 0.5}, {}),
    ],
)  # fmt: skip
def test_another_rotation_is_another_text(one: Any, other: Any) -> None:
    assert rotary(one) != rotary(other)


def test_a_configuration_counts_as_it_is_served(tmp_path: Path) -> None:
    bound = side("tp=1")
    nested = {"text_config": {"rope_theta": 5, "vocab_size": 3}}
    assert settings(bound, facts(tmp_path, nested))[ROTARY] == "rope_theta=5"
    assert settings(bound, facts(tmp_path, nested, rope_theta=6))[ROTARY] == "rope_theta=6"
    assert settings(bound, facts(tmp_path, nested, text_config={"rope_theta": 7}))[ROTARY] == "rope_theta=7"


@pytest.mark.parametrize("config", ["", "{", "[]", '{"rope_scaling": "none"}', '{"text_config": 5}'])
def test_a_checkpoint_without_a_configuration_rotates_nothing_that_is_known(tmp_path: Path, config: str) -> None:
    assert settings(side("tp=1"), facts(tmp_path, config))[ROTARY] == "none"
    assert settings(side("tp=1"), replace(FACTS, config=str(tmp_path / "none")))[ROTARY] == "none"


def test_engines_of_two_kinds_say_the_same_of_one_model(tmp_path: Path) -> None:
    given = facts(tmp_path, {"rope_theta": 1e6})
    sides = [settings(side(key), given) for key in ("engine=vllm,tp=2,block=16", "engine=sglang,tp=1,block=64")]
    assert sides[0] == sides[1] == {"elements of attention": "k=bf16 v=bf16", ROTARY: "rope_theta=1e+06"}
    assert settings(side("engine=vllm,tp=1,kv_dtype=fp8"), given)["elements of attention"] == "k=fp8 v=fp8"


def test_a_text_that_is_too_long_for_a_card_ends_with_its_digest(tmp_path: Path) -> None:
    tables = [{"rope_parameters": {f"kind of layers {n}": {"rope_theta": n} for n in range(last)}} for last in (40, 41)]
    long = [settings(side("tp=1"), facts(tmp_path, table))[ROTARY] for table in tables]
    assert long[0] != long[1]
    assert max(map(len, long)) <= LONGEST
