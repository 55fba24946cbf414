"""Sides that the shipped engine cannot run are refused with its own sentence; the sides next to them are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import load

MODEL = """kvplan: 1
model: tiny
title: A tiny model
dtype: bf16
query_heads: 24
layers: 2
caches:
  kv: {{kind: gqa, layers: [0], heads: 4, dim: {dim}, dim_v: 32}}
  state: {{{cache}, layers: [1]}}
"""
STATES = [
    ("kind: mamba1, channels: 6, state: 4, conv: 4", 2, 4, "6 channels cannot be divided among tp=4"),
    (
        "kind: mamba2, heads: 6, head_dim: 4, state: 4, groups: 1, conv: 4",
        2,
        4,
        "6 state heads cannot be divided among tp=4",
    ),
    (
        "kind: mamba2, heads: 8, head_dim: 4, state: 4, groups: 2, conv: 4",
        2,
        4,
        "2 groups cannot be divided among tp=4",
    ),
    (
        "kind: gdn, key_heads: 4, value_heads: 6, key_dim: 4, conv: 4",
        2,
        4,
        "6 value heads cannot be divided among tp=4",
    ),
    ("kind: gdn, key_heads: 2, value_heads: 8, key_dim: 4, conv: 4", 2, 4, "2 key heads cannot be divided among tp=4"),
    ("kind: kda, value_heads: 6, value_dim: 4, conv: 4", 2, 4, "6 value heads cannot be divided among tp=4"),
    (
        "kind: kda, value_heads: 8, key_heads: 2, value_dim: 4, conv: 4",
        2,
        4,
        "2 key heads cannot be divided among tp=4",
    ),
    ("kind: linear, heads: 6, dim: 4", 2, 4, "6 state heads cannot be divided among tp=4"),
    ("kind: short_conv, channels: 6, conv: 3", 2, 4, "6 channels cannot be divided among tp=4"),
]
KEYS = [
    (32, "kv_dtype=nvfp4,order=LBHNC", "kv_dtype=nvfp4,order=LBNHC", "no storage 'LBNHC' for the record 'nvfp4'"),
    (32, "kv_dtype=nvfp4", "kv_dtype=nvfp4,order=LHBNC", "no storage 'LHBNC' for the record 'nvfp4'"),
    (24, "kv_dtype=fp8", "kv_dtype=nvfp4", "heads of 24 and 32 elements do not come in sixteens"),
    (33, "kv_dtype=int8_per_token_head", "kv_dtype=int4_per_token_head", "33 and 32 elements do not come in pairs"),
]


def bound(tmp_path: Path, text: str, side: str) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    library = load([path])
    bind(library, library.model("tiny"), side)


@pytest.mark.parametrize(("cache", "good", "bad", "said"), STATES)
def test_states_that_cannot_be_shared(tmp_path: Path, cache: str, good: int, bad: int, said: str) -> None:
    text = MODEL.format(cache=cache, dim=32)
    bound(tmp_path, text, f"tp={good}")
    with pytest.raises(Refused, match=said) as refusal:
        bound(tmp_path, text, f"tp={bad}")
    assert refusal.value.code == "C110"


@pytest.mark.parametrize(("dim", "good", "bad", "said"), KEYS)
def test_formats_without_a_place(tmp_path: Path, dim: int, good: str, bad: str, said: str) -> None:
    text = MODEL.format(cache="", dim=dim).replace("  state: {, layers: [1]}\n", "")
    bound(tmp_path, text, good)
    with pytest.raises(Refused, match=said) as refusal:
        bound(tmp_path, text, bad)
    assert refusal.value.code == ("C121" if "storage" in said else "C110")
