"""Real bytes over the memory transport from one engine's layout to another's."""

from __future__ import annotations

import pytest
from tests.end_to_end.worlds import move, world
from tests.paths import TESTS

from kvplan.compiler.api import compile_pair
from kvplan.compiler.check.sample import sample_request
from kvplan.dsl.library import Library, load

TOYS = TESTS / "compiler" / "toys"
CROSSINGS = [
    ("toy-heads", "engine=gaudi,block=48,tp=2", "tp=4"),
    ("toy-heads", "tp=4,order=nhd", "engine=gaudi,block=32,tp=1"),
    ("toy-heads", "engine=vllm-legacy,backend=planes,order=nhd,tp=1", "engine=sglang,tp=2"),
    ("toy-heads", "engine=vllm-legacy,place=k-then-v-inside,tp=2", "engine=sglang,block=16,order=vectorized_5d,tp=1"),
    ("toy-windows", "engine=sglang,block=8,order=hnd,tp=2", "engine=vllm-legacy,tp=4"),
    ("toy-windows", "engine=gaudi,block=48,tp=4", "engine=sglang,block=1,tp=2"),
    ("toy-latent", "engine=sglang,block=64,kv_dtype=fp8_ds_mla,tp=2", "engine=vllm-legacy,kv_dtype=fp8_ds_mla,tp=1"),
    ("toy-tiles", "engine=ascend,order=nz,tp=2", "tp=4"),
    ("toy-tiles", "engine=rbln,block=32,tp=1", "engine=ascend,tp=2"),
    ("toy-latent", "tp=2", "engine=ascend,order=nz,tp=1"),
    ("toy-sparse", "engine=sglang,block=64,tp=1", "block=32,kernel_sizes=16,tp=2"),
    ("toy-mamba2", "engine=sglang,block=16,tp=4", "engine=vllm-legacy,conv=SD,draft_tokens=2,tp=2"),
    ("toy-mamba2", "tp=1", "engine=gaudi,form=by_page,block=16,tp=2"),
    ("toy-delta", "engine=gaudi,form=by_page,conv=SD,block=16,tp=2", "engine=sglang,block=1,tp=4"),
    ("toy-kda", "engine=vllm-legacy,kda_conv=SD-parts,tp=1", "engine=sglang,block=16,tp=2"),
    ("toy-conv", "engine=vllm-legacy,tp=4", "engine=sglang,block=4,tp=2"),
]


@pytest.fixture(scope="module")
def library() -> Library:
    return load(layouts=(TOYS,))


@pytest.mark.parametrize(("model", "prefill", "decode"), CROSSINGS)
def test_bytes_cross(library: Library, model: str, prefill: str, decode: str) -> None:
    made = compile_pair(library, model, prefill, decode)
    sides = made.prefill, made.decode
    requests = [sample_request(*sides, tokens, seed=seed) for seed, tokens in enumerate(((0, 97), (5, 64), (33, 90)))]
    with world(made.plan, sides, requests) as here:
        move(here, requests[0], "first")
    for number, request in enumerate(requests[1:]):
        with world(made.plan, sides, [request]) as here:
            move(here, request, f"next{number}")
