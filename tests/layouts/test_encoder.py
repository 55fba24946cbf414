"""Items of vision-language models: rows as wide as checkpoints say, on every worker all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.paths import ROOT

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import load

LIBRARY = load()
MODELS = sorted(LIBRARY.family("qwen3-vl-encoder"))
HUB = ROOT / "tests/conformance/configurations/hub.jsonl"
POOL = "engine=encoder-pool"


def checkpoint(page: str) -> dict[str, Any]:
    """The configuration of a checkpoint of the hub."""
    key = f"hub--{page.removeprefix('https://huggingface.co/').replace('/', '--')}"
    lines = (json.loads(line) for line in HUB.read_text().splitlines())
    config: dict[str, Any] = next(each["config"] for each in lines if each["key"] == key)
    return config


@pytest.mark.parametrize("name", MODELS)
def test_a_row_has_a_vector_for_each_layer_that_the_encoder_gives_features(name: str) -> None:
    config = checkpoint(LIBRARY.model(name).doc_ref)
    (cache,) = bind(LIBRARY, LIBRARY.model(name), POOL).caches
    (row,) = cache.tensors
    levels = 1 + len(config["vision_config"]["deepstack_visual_indexes"])
    assert row.axes == (("token", 0), ("level", levels), ("dim", config["text_config"]["hidden_size"]))
    assert row.dtype == {"bfloat16": "bf16"}[config["text_config"]["dtype"]]


@pytest.mark.parametrize(("encode", "prefill"), [(1, 4), (4, 1), (4, 2), (2, 3)])
def test_every_worker_reads_all_of_an_item_from_one(encode: int, prefill: int) -> None:
    plan = compile_pair(LIBRARY, MODELS[0], f"{POOL},tp={encode}", f"{POOL},tp={prefill}").plan
    assert [len(reads) for reads in plan.reads] == [1] * prefill
    assert all(read.layers == (0,) and not read.holds for (read,) in plan.reads)


def test_elements_are_not_converted() -> None:
    with pytest.raises(Refused, match="f16 on prefill and bf16 on decode"):
        compile_pair(LIBRARY, MODELS[0], f"{POOL},kv_dtype=f16", POOL)


def test_a_pool_of_items_has_no_keys_and_values() -> None:
    with pytest.raises(Refused, match="no storage 'in-one-piece'"):
        bind(LIBRARY, LIBRARY.model("llama-3.1-8b"), POOL)
