"""Facts about public models, turned into the expected contents of their layout files, which this module does not read.

The fixture has one entry for a model: its layers by what they are (numbers from 0), heads, sizes of heads, windows,
numbers of states, draft layers by what they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.paths import FIXTURES

Fact = dict[str, Any]
Expected = tuple[str, tuple[int, ...], Mapping[str, object]]

FACTS: list[Fact] = json.loads((FIXTURES / "models.json").read_text())
# The model whose caches have a compressed token axis; its own tests know its numbers.
COMPRESSED = "deepseek-ai/DeepSeek-V4-Flash"
# Layers that the indexed attention of a model begins at, where it is not all of them.
INDEXED_FROM = {"MiniMaxAI/MiniMax-M3": 3}
TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}


def expected(fact: Fact) -> Iterator[Expected]:
    """(kind, layers, numbers) of every cache of a model's own layers."""
    for what, layers in fact["layers"].items():
        own = tuple(layer for layer in layers if layer < fact["num_hidden_layers"] - fact.get("kv_shared_layers", 0))
        if what in KINDS and own:
            yield KINDS[what][0], own, KINDS[what][1](fact)
    index = fact.get("indexer")
    if index or fact["hf_id"] in INDEXED_FROM:
        first = INDEXED_FROM.get(fact["hf_id"], 0)
        dim = index["index_head_dim"] if index else fact["head_dim_k"]
        yield "indexer", tuple(range(first, fact["num_hidden_layers"])), {"dim": dim}


def drafted(fact: Fact) -> Iterator[Expected]:
    """(kind, layers, numbers) of every cache of a model's draft layers, which are numbered after its own."""
    own = {kind: numbers for kind, _, numbers in expected(fact)}
    for what, count in fact.get("drafts", {}).items():
        kind, numbers = KINDS[what]
        layers = tuple(fact["num_hidden_layers"] + n for n in range(count))
        yield kind, layers, numbers(fact)
        if "indexer" in own:
            yield "indexer", layers, own["indexer"]


def _attention(fact: Fact) -> dict[str, object]:
    heads = fact.get("num_kv_heads_global", fact["num_kv_heads"])
    sizes = {"dim": fact["head_dim_k"], "dim_v": fact["head_dim_v"]}
    if "head_dim_global" in fact:
        sizes = dict.fromkeys(sizes, fact["head_dim_global"])
    return {"heads": heads, **sizes, "window": 0, "chunk": 0}


def _window(fact: Fact) -> dict[str, object]:
    heads = fact.get("num_kv_heads_sliding", fact["num_kv_heads"])
    return {
        "heads": heads,
        "dim": fact["head_dim_k"],
        "dim_v": fact["head_dim_v"],
        "window": fact["window"],
        "chunk": 0,
    }


def _chunk(fact: Fact) -> dict[str, object]:
    return {**_attention(fact), "chunk": fact["chunk"]}


def _cross(fact: Fact) -> dict[str, object]:
    return {"heads": fact["num_kv_heads"], "dim": fact["head_dim_k"], "dim_v": fact["head_dim_v"]}


def _latent(fact: Fact) -> dict[str, object]:
    return {"latent": fact["mla"]["kv_lora_rank"], "rope": fact["mla"]["qk_rope_head_dim"]}


def _dtype(fact: Fact) -> str:
    """The element type of the recurrent state: the model's own unless it says another."""
    word = fact["state"]["ssm_dtype"].split()[0]
    return TYPES[fact["dtype"] if word == "auto" else word]


def _mamba1(fact: Fact) -> dict[str, object]:
    s = fact["state"]
    return {
        "channels": s["intermediate"], "state": s["state"], "conv": s["conv_kernel"], "ssm_dtype": _dtype(fact),
    }  # fmt: skip


def _mamba2(fact: Fact) -> dict[str, object]:
    s = fact["state"]
    assert s["intermediate"] == s["num_heads"] * s["head_dim"]
    return {
        "heads": s["num_heads"], "head_dim": s["head_dim"], "state": s["state"], "groups": s["n_groups"],
        "conv": s["conv_kernel"], "ssm_dtype": _dtype(fact),
    }  # fmt: skip


def _gdn(fact: Fact) -> dict[str, object]:
    s = fact["state"]
    return {
        "key_heads": s["num_k_heads"], "key_dim": s["head_k_dim"],
        "value_heads": s["num_v_heads"], "value_dim": s["head_v_dim"],
        "conv": s["conv_kernel"], "ssm_dtype": _dtype(fact),
    }  # fmt: skip


def _kda(fact: Fact) -> dict[str, object]:
    s = fact["state"]
    assert s["conv_dim"] == 3 * s["num_heads"] * s["head_dim"]
    return {
        "key_heads": s["num_heads"], "key_dim": s["head_dim"],
        "value_heads": s["num_heads"], "value_dim": s["head_dim"],
        "conv": s["conv_kernel"], "ssm_dtype": _dtype(fact),
    }  # fmt: skip


def _linear(fact: Fact) -> dict[str, object]:
    s = fact["state"]
    return {"heads": s["num_heads"], "dim": s["head_dim"], "state_dtype": _dtype(fact)}


def _short_conv(fact: Fact) -> dict[str, object]:
    return {"channels": fact["state"]["conv_dim"], "conv": fact["state"]["conv_kernel"]}


KINDS = {
    "full_attention": ("gqa", _attention),
    "self_attention": ("gqa", _attention),
    "sparse/full attention + index cache": ("gqa", _attention),
    "sliding_window": ("gqa", _window),
    "chunked_local_attention": ("gqa", _chunk),
    "cross_attention": ("cross-attention", _cross),
    "mla": ("mla", _latent),
    "mamba1": ("mamba1", _mamba1),
    "mamba2": ("mamba2", _mamba2),
    "gdn": ("gdn", _gdn),
    "kda": ("kda", _kda),
    "linear_attention": ("linear", _linear),
    "short_conv": ("short_conv", _short_conv),
}
