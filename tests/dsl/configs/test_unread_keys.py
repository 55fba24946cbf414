"""Which keys of a configuration nobody may overlook: those of a family that a rule reads, whatever is set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.dsl.configs.families import reading_of
from kvplan.dsl.configs.new_model import made
from kvplan.dsl.configs.unread_keys import families, family, suspect
from kvplan.dsl.library import load

LIBRARY = load()
READING, _ = reading_of(LIBRARY, {})
OPEN = [pattern for pattern in READING.no_effect if "*" in pattern]


def test_families_are_those_of_the_keys_that_kinds_read() -> None:
    assert READING.families == families(READING, [rule for kind in LIBRARY.kinds.values() for rule in kind.match])
    assert {"index", "indexer", "kv", "linear", "mamba", "qk", "sliding", "ssm", "swa"} <= READING.families
    assert not READING.families & set(READING.plain)


@pytest.mark.parametrize("key", ["index_topk_freq", "Index_dim", "_sliding_window_pattern", "mamba_x", "qk_nope_dim"])
def test_a_key_of_a_family_is_never_overlooked(key: str) -> None:
    assert family(key, READING) in READING.families
    assert suspect(key, READING)


@pytest.mark.parametrize("pattern", OPEN)
def test_no_open_pattern_hides_a_key_of_a_family(pattern: str) -> None:
    keys = [f"{name}_{pattern.strip('*_')}" for name in READING.families]
    assert [key for key in keys if key not in READING.no_effect and not suspect(key, READING)] == []


@pytest.mark.parametrize("pattern", OPEN)
def test_an_open_pattern_is_a_part_of_a_model_or_a_noun_and_no_family(pattern: str) -> None:
    word = pattern.strip("*_")
    assert pattern in (f"{word}_*", f"*_{word}")
    assert not pattern.startswith(word) or family(word, READING) not in {"", *READING.families}


@pytest.mark.parametrize("key", sorted({*READING.no_effect} - {*OPEN}))
def test_a_key_that_is_set_aside_would_be_named_otherwise(key: str) -> None:
    """A key that nothing would name needs no entry, and an entry that is written in capitals would never be found."""
    assert key == key.lower()
    looks = type(READING)(families=READING.families, plain=READING.plain, about=READING.about)
    assert suspect(key, looks)


KIND = """\
kvplan: 1
kind: gaze
title: Gaze
params: {dim: {doc: elements}}
store: tokens
tensors: {k: {axes: {token: ~, dim: dim}, dtype: bf16}}
storage: {only: "layer { block { k[token dim] } }"}
match: {when: has(vision_gaze_dim), dim: vision_gaze_dim}
"""


def test_a_kind_of_ones_own_brings_its_family(tmp_path: Path) -> None:
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds/gaze.yaml").write_text(KIND)
    config = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "dtype": "float16",
        "vision_depth": 3,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    before = made(LIBRARY, tmp_path / "config.json").doubts
    told = made(load((), [tmp_path / "kinds"]), tmp_path / "config.json")
    assert set(told.doubts) - set(before) == {"`vision_depth` was not read: see in the model's code what it does"}
