"""Digests of plans of every kind of cache that is shipped, with models made small."""

from __future__ import annotations

from functools import cache

import pytest
from tests.layouts.shrink import shrunk, thinned
from tests.paths import ROOT
from tests.runtime.helpers.checksums import EVERY, ROLES, Engines, engines, spots
from tests.shares import later

from kvplan.compiler.api import Compiled, compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.dsl.library import Library, load
from kvplan.runtime.checksum.checksum import Sample, first_unlike

EXAMPLES = ROOT / "examples/models"
PAIRS = [
    ("llama-3.1-8b", "tp=1,pp=2", "tp=16,block=32"),
    ("llama-3.1-8b", "tp=4,order=nhd", "engine=sglang,block=4,tp=2"),
    ("deepseek-v3", "tp=8", "tp=8,dcp=8"),
    ("deepseek-v3", "engine=custom,tp=3,dcp=3,interleave=24", "tp=2,block=32"),
    ("deepseek-v3", "tp=4,kv_dtype=fp8_ds_mla", "tp=2,kv_dtype=fp8_ds_mla"),
    ("deepseek-v3.2", "tp=4,block=64,kv_dtype=fp8_ds_mla", "tp=2,block=64,kv_dtype=fp8_ds_mla"),
    ("deepseek-v4-flash", "tp=2,order=BLHNC,block=256", "tp=1,order=BLNHC,block=256"),
    ("latents", "tp=2,order=BLHNC", "tp=1,order=BLNHC"),
    ("nemotron-3-nano-30b", "tp=1", "tp=4,draft_tokens=2"),
    ("nemotron-3-nano-30b", "tp=8", "engine=sglang,tp=2,block=16"),
    ("granite-4.0-h-small", "tp=4", "tp=2"),
    ("gemma-3-27b", "tp=2", "tp=4"),
    ("qwen3-next-80b", "tp=2", "tp=1,conv=SD"),
    ("kimi-linear-48b", "tp=2", "tp=1"),
    ("falcon-mamba-7b", "tp=1", "tp=2"),
    ("minimax-text-01", "tp=4", "tp=2"),
    ("lfm2-1.2b", "tp=1", "tp=2"),
    ("whisper-large-v3", "tp=1", "tp=2"),
    ("streams", "engine=custom,tp=2", "engine=custom,tp=1"),
    ("qwen3-vl-2b-encoder", "engine=encoder-pool,tp=2", "engine=encoder-pool"),
    ("rings", "engine=custom,tp=2", "engine=custom,tp=1,draft_tokens=3,order=BLHNC"),
]


@cache
def library() -> Library:
    return load(sorted(EXAMPLES.glob("*.yaml")))


@cache
def compiled(model: str, prefill: str, decode: str) -> Compiled:
    # A record of quantised latents is of one length.
    whole = library().model(model)
    small = thinned(whole) if "fp8_ds_mla" in prefill else shrunk(library(), whole)
    return compile_bound(bind(library(), small, prefill), bind(library(), small, decode))


def filled(made: Compiled) -> Engines:
    both = made.prefill, made.decode
    return engines(made.plan, both, sample_request(*both, sample_range(*both), seed=4))


def test_every_kind_is_there() -> None:
    moved = {
        (model, r.cache) for (model, *sides) in PAIRS for reads in compiled(model, *sides).plan.reads for r in reads
    }
    assert {library().model(model).caches[name].kind for model, name in moved} == set(library().kinds)


@pytest.mark.parametrize(("model", "prefill", "decode"), [*PAIRS[::2], *later(PAIRS[1::2])])
def test_engines_agree_and_find_what_differs(model: str, prefill: str, decode: str) -> None:
    made = compiled(model, prefill, decode)
    both = filled(made)
    for link in both.links():
        mine, theirs = (both.read(*link, role) for role in ROLES)
        assert first_unlike(mine, theirs) is None
        assert mine
    for sample in (EVERY, Sample(every=7)):
        mine, theirs = (both.side(role, sample) for role in ROLES)
        assert mine == theirs
        assert any(mine.values())
    _flip(both, made)


def _flip(both: Engines, made: Compiled) -> None:
    """One byte of every tensor of one worker, one after the other."""
    tried = set()
    worker = len(both.memory["decode"]) - 1
    links = [link for link in both.links() if link[1] == worker]
    before = [both.read(*link, "decode") for link in links]
    for spot in spots(both, (made.prefill, made.decode), "decode", worker)[::7]:
        if (spot.cache, spot.layer) in tried:
            continue
        page = both.memory["decode"][worker].planes[spot.plane]
        page[spot.block, spot.byte] ^= 0x01
        after = [both.read(*link, "decode") for link in links]
        found = [first_unlike(one, other) for one, other in zip(before, after, strict=True)]
        page[spot.block, spot.byte] ^= 0x01
        assert [one for one in found if one] == [(spot.cache, spot.layer)]
        tried.add((spot.cache, spot.layer))
    assert tried


def test_engines_of_unlike_sizes_agree_with_each_other() -> None:
    """One content in four engines, each pair of them a plan of its own."""
    sums = []
    for other in ("tp=2", "tp=4,pp=2", "tp=16,block=32", "engine=sglang,tp=1,block=4"):
        made = compiled("llama-3.1-8b", "tp=1", other)
        both = made.prefill, made.decode
        here = engines(made.plan, both, sample_request(*both, (0, 96), seed=1))
        sums += [here.side(role, Sample(every=2)) for role in ROLES]
    assert len({tuple(sorted(one.items())) for one in sums}) == 1
