"""Shipped models, simulated: the real geometry, few tokens."""

from __future__ import annotations

import pytest
from tests.layouts.shrink import compiled, thinned
from tests.shares import later

from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.dsl.library import load

FP8 = ",kv_dtype=fp8,kernel_block=16"
PAIRS = [
    ("llama-3.1-8b", "tp=2", "tp=4", (0, 40)),
    ("llama-3.1-8b", "tp=4,order=nhd", "tp=2,pp=2,block=32", (5, 40)),
    ("llama-3.3-70b", "tp=16", "tp=8", (0, 16)),
    ("deepseek-v3", "tp=8", "tp=2", (3, 70)),
    ("nemotron-3-nano-30b", "tp=4" + FP8, "tp=1" + FP8, (0, 2200)),
    ("nemotron-3-nano-30b", "tp=1", "tp=2", (1000, 1100)),
    ("granite-4.0-h-small", "tp=1", "tp=2", (0, 100)),
    ("gemma-3-27b", "tp=2", "tp=4,block=32", (1081, 1100)),
    ("llama-4-scout", "tp=8", "tp=2", (8185, 8200)),
    ("whisper-large-v3", "tp=4", "tp=5", (0, 30)),
    ("jamba-1.5-mini", "tp=4", "tp=2", (0, 90)),
    ("lfm2-1.2b", "tp=1", "tp=4", (3, 50)),
    ("qwen3-next-80b", "tp=2", "tp=4", (0, 300)),
    ("llama-3.1-8b", "engine=custom,tp=6", "engine=custom,tp=4,order=shuffled,copies=round_robin", (1, 40)),
]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.full)], ids=["thin", "whole"])
@pytest.mark.parametrize(("model", "prefill", "decode", "tokens"), [*PAIRS[1::2], *later(PAIRS[::2])])
def test_simulated_equals_naive(model: str, prefill: str, decode: str, tokens: tuple[int, int], whole: bool) -> None:
    """Few of the layers show what all of them would; vectors are as long as they are. Every second pair is for
    `make test-all`: test_sweep.py has all models, with shorter vectors."""
    library = load()
    found = library.model(model)
    made = compiled(library, found if whole else thinned(found), prefill, decode)
    request = sample_request(made.prefill, made.decode, tokens, seed=7)
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()
