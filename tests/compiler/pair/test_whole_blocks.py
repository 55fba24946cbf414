"""Caches of which a reader needs whole blocks only: what moves, and which pairs are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import CompileError
from kvplan.dsl.library import Library, load

MODEL = """\
kvplan: 1
model: denoised
title: A model that denoises blocks
dtype: bf16
query_heads: 8
layers: 2
caches:
  attention: {kind: gqa, layers: all, heads: 2, dim: 8, needs: {NEEDS}}
"""
BYTES = 2 * 2 * 2 * 8 * 2  # of a token: layers, K and V, heads, elements, bf16


def library(folder: Path, needs: str) -> Library:
    (folder / "denoised.yaml").write_text(MODEL.replace("NEEDS", needs))
    return load(layouts=(folder,))


@pytest.mark.parametrize(
    ("needs", "tokens", "moved"),
    [
        ("whole: 32", (0, 100), 96),
        ("whole: 32", (5, 100), 91),
        ("whole: 32", (5, 96), 91),
        ("whole: 24", (0, 100), 96),
        ("whole: 7", (0, 100), 98),
        ("whole: 32, window: 11", (0, 100), 10),
        ("whole: 32, chunk: 64, sink: 3", (0, 100), 35),
        ("whole: 0", (0, 100), 100),
    ],
)
@pytest.mark.parametrize("decode", ["engine=custom,order=LBNHC,block=8,tp=2", "engine=sglang,block=1,tp=2"])
def test_tokens_behind_the_last_whole_block_stay(
    tmp_path: Path, needs: str, tokens: tuple[int, int], moved: int, decode: str
) -> None:
    made = compile_pair(library(tmp_path, needs), "denoised", "engine=custom,block=16,tp=1", decode)
    request = sample_request(made.prefill, made.decode, tokens)
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()
    assert report.bytes == moved * BYTES


def test_a_request_within_the_first_block_moves_nothing(tmp_path: Path) -> None:
    made = compile_pair(library(tmp_path, "whole: 32"), "denoised", "engine=custom,tp=1", "engine=custom,tp=1")
    request = sample_request(made.prefill, made.decode, (0, 31))
    assert not copies(made.plan, request)


@pytest.mark.parametrize(
    ("more", "prefill", "decode", "fits"),
    [
        ("", 32, 32, True),
        ("", 32, 64, True),
        ("", 64, 32, False),
        ("", 0, 32, True),
        ("", 32, 0, False),
        (", window: 9", 32, 32, True),
        (", window: 9", 32, 64, False),
    ],
)
def test_prefill_keeps_the_whole_blocks_of_decode(
    tmp_path: Path, more: str, prefill: int, decode: int, fits: bool
) -> None:
    one, other = (f"engine=custom,tp=1,draft_tokens={each}" for each in (prefill, decode))
    ready = library(tmp_path, f"whole: draft_tokens{more}")
    if fits:
        assert compile_pair(ready, "denoised", one, other).plan.reads
        return
    with pytest.raises(CompileError) as caught:
        compile_pair(ready, "denoised", one, other)
    assert caught.value.code == "C137"
