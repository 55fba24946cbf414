"""Engines that store whole heads in place of a model's latents if the checkpoint has a certain type."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import Refused
from kvplan.dsl.configs.new_model import made
from kvplan.dsl.library import Library, load

LATENTS: dict[str, Any] = {
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 256,
    "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def bound(tmp_path: Path, side: str, **config: object) -> BoundSide:
    """A side of the model that `new` writes for latents, with `config` added to the checkpoint's configuration."""
    (tmp_path / "config.json").write_text(json.dumps({**LATENTS, **config}))
    (tmp_path / "mine.yaml").write_text(made(load(), tmp_path / "config.json", tmp_path / "mine.yaml").text)
    known = load([tmp_path / "mine.yaml"])
    return bind(known, known.model("mine"), side)


def kinds(side: BoundSide) -> dict[str, str]:
    return {cache.name: cache.kind for cache in side.caches}


@pytest.mark.parametrize(
    ("architecture", "model_type", "kind"),
    [
        ("MiniCPM3ForCausalLM", "minicpm3", "gqa"),
        ("YoutuForCausalLM", "youtu", "gqa"),
        ("DeepseekV3ForCausalLM", "deepseek_v3", "mla"),
        ("SarvamMLAForCausalLM", "sarvam_mla", "mla"),
    ],
)
def test_vllm_decides_by_the_checkpoint(tmp_path: Path, architecture: str, model_type: str, kind: str) -> None:
    side = bound(tmp_path, "tp=1", architectures=[architecture], model_type=model_type)
    assert kinds(side) == {"attention": kind}


def test_whole_heads_are_split_over_workers_and_values_padded_to_keys(tmp_path: Path) -> None:
    side = bound(tmp_path, "tp=2", architectures=["MiniCPM3ForCausalLM"], model_type="minicpm3")
    (cache,) = side.caches
    axes = {tensor.name: dict(tensor.axes) for tensor in cache.tensors}
    assert {name: (one["head"], one["dim"]) for name, one in axes.items()} == {"k": (4, 96), "v": (4, 96)}
    assert all(tensor.split == (("head", "tp"),) for tensor in cache.tensors)


def test_a_side_can_say_it(library: Library) -> None:
    model = library.model("deepseek-v3")
    side = bind(library, model, "tp=8,latents=heads")
    (cache,) = side.caches
    assert (side.key, cache.kind, cache.env["heads"], cache.env["dim"]) == ("tp=8,latents=heads", "gqa", 128, 192)
    assert bind(library, model, "tp=8,latents=kept").key == "tp=8"


def test_what_stands_beside_latents_is_not_stored_then(library: Library) -> None:
    model = library.model("deepseek-v3.2")
    assert kinds(bind(library, model, "tp=8,block=64")) == {"attention": "mla", "indexer": "indexer"}
    assert kinds(bind(library, model, "tp=8,latents=heads")) == {"attention": "gqa"}


def test_a_side_says_what_it_stores_instead_and_why(tmp_path: Path, library: Library) -> None:
    side = bound(tmp_path, "tp=1", architectures=["MiniCPM3ForCausalLM"], model_type="minicpm3")
    why = "latents == 'heads' for architecture MiniCPM3ForCausalLM and model_type minicpm3"
    assert side.notes == (f"vllm stores attention as gqa (heads 4, dim 96), not mla, because {why}",)
    notes = bind(library, library.model("deepseek-v3.2"), "tp=8,latents=heads").notes
    assert [note for note in notes if "latents" in note] == [
        "vllm stores attention as gqa (heads 128, dim 192), not mla, because latents == 'heads'",
        "vllm does not store indexer, because latents == 'heads'",
    ]
    assert not any("latents" in note for note in bind(library, library.model("deepseek-v3.2"), "tp=8,block=64").notes)


def test_a_pair_of_which_one_side_stores_something_instead_says_on_what_that_depends(library: Library) -> None:
    with pytest.raises(Refused, match=r"prefill does not \(because latents == 'heads'\)"):
        compile_pair(library, "deepseek-v3.2", "tp=8,latents=heads", "tp=8,block=64")


@pytest.mark.parametrize(
    ("name", "side"), [("deepseek-v3.2", "block=64"), ("deepseek-v4-flash", "order=BLHNC,block=256")]
)
def test_index_keys_of_four_bits_are_a_side_s_choice(library: Library, name: str, side: str) -> None:
    found = bind(library, library.model(name), f"{side},index_keys=mxfp4")
    (keys,) = (own for own in found.caches if own.name == "indexer")
    sizes = [tensor.size * prod(size for axis, size in tensor.axes if axis != "token") for tensor in keys.tensors]
    assert (sum(sizes), found.key.endswith(",index_keys=mxfp4")) == (68, True)
    whole = bind(library, library.model(name), f"{side},index_keys=fp8")
    assert whole == bind(library, library.model(name), side)


def test_an_indexer_of_a_model_that_says_its_record_keeps_it(library: Library) -> None:
    (keys,) = (c for c in bind(library, library.model("minimax-m3"), "index_keys=mxfp4").caches if c.kind == "indexer")
    assert keys.env["record"] == "bf16"


def test_an_indexer_without_latents_is_stored_whatever_the_checkpoint_is(tmp_path: Path) -> None:
    text = """kvplan: 1
model: mine
title: Heads with an index
checkpoint: {architecture: MiniMaxM3SparseForCausalLM, model_type: minimax_m3_vl_text}
dtype: bf16
query_heads: 8
layers: 2
caches:
  attention: {kind: gqa, layers: all, heads: 4, dim: 128}
  index: {kind: indexer, layers: all, dim: 128, record: bf16}
"""
    (tmp_path / "mine.yaml").write_text(text)
    known = load([tmp_path / "mine.yaml"])
    assert kinds(bind(known, known.model("mine"), "tp=1,block=128")) == {"attention": "gqa", "index": "indexer"}


def test_a_layout_that_does_not_say_what_heads_need_is_refused(tmp_path: Path) -> None:
    side = {"architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "qk_nope_head_dim": None}
    with pytest.raises(Refused, match=r"C110: mine on vllm: it keeps the keys .* add nope"):
        bound(tmp_path, "tp=1", **side)


def test_a_layout_that_does_not_say_how_many_heads_is_refused_by_its_own_file(tmp_path: Path) -> None:
    bound(tmp_path, "tp=1", architectures=["MiniCPM3ForCausalLM"], model_type="minicpm3")
    path = tmp_path / "mine.yaml"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("query_heads")))
    known = load([path])
    with pytest.raises(
        Refused, match=r"C110: mine on vllm: .* cache 'attention', and the layout lacks query_heads"
    ) as e:
        bind(known, known.model("mine"), "tp=1")
    assert e.value.help.startswith("give query_heads in ")
    assert e.value.help.endswith("mine.yaml")
