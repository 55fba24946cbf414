"""Numbers that vLLM's own comments and issues name, and what its rules give for shipped models, at full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.place import place
from kvplan.dsl.library import Library, load


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def bound(library: Library, model: str, side: str) -> BoundSide:
    return bind(library, library.model(model), side)


@pytest.mark.parametrize(
    ("model", "side", "tokens", "ratio"),
    [
        ("qwen3-next-80b", "tp=1", 544, 1),
        ("qwen3.5-35b", "tp=1", 1056, 1),
        ("qwen3.5-27b", "tp=1", 784, 1),
        ("qwen3-next-80b", "tp=1,state_step=64", 576, 1),
        ("qwen3.5-35b", "tp=1,state_step=64", 1088, 1),
        ("qwen3.5-27b", "tp=1,state_step=64", 832, 1),
        ("qwen3-next-80b", "tp=1,state_step=64,block=48", 576, 1),
        ("kimi-linear-48b", "tp=1,state_step=64", 1920, 1),
        ("kimi-linear-48b", "tp=1", 1920, 1),
        ("lfm2-1.2b", "tp=1", 16, 1),
        ("nemotron-3-nano-30b", "tp=4,kv_dtype=fp8,kernel_sizes=16+32+64", 2096, 131),
        ("nemotron-3-nano-30b", "tp=1,kv_dtype=fp8,kernel_sizes=16+32+64", 4176, 261),
        ("nemotron-3-nano-30b", "tp=1", 2096, 1),
        ("nemotron-3-nano-30b", "tp=2", 2096, 1),
        ("nemotron-3-nano-30b", "tp=4", 1056, 1),
        ("nemotron-3-nano-30b", "tp=8", 528, 1),
        ("nemotron-3-nano-30b", "tp=1,kernel_sizes=16+32+64", 2096, 131),
        ("nemotron-3-nano-30b", "tp=4,kernel_sizes=16+32+64", 1056, 33),
        ("nemotron-3-nano-30b", "tp=4,kernel_sizes=16+32+64,order=BLHNC", 1056, 1),
        ("nemotron-3-nano-30b", "tp=1,kv_dtype=fp8,draft_tokens=2,kernel_block=16", 264 * 16, 264),
    ],
)
def test_blocks_of_hybrids(library: Library, model: str, side: str, tokens: int, ratio: int) -> None:
    groups = bound(library, model, side).groups
    assert [(group.tokens, group.ratio) for group in groups if group.store == "tokens"] == [(tokens, ratio)]


@pytest.mark.parametrize(
    ("model", "side", "tokens"),
    [
        ("gemma-4-26b", "tp=1", {"full": 32, "sliding": 16}),
        ("gemma-4-26b", "tp=4", {"full": 16, "sliding": 16}),
        ("gemma-4-26b", "tp=8", {"full": 16, "sliding": 32}),
        ("gpt-oss-20b", "tp=1,block=128,kernel_sizes=16+64", {"full": 128, "sliding": 128}),
    ],
)
def test_how_blocks_of_windows_compare_depends_on_tp(
    library: Library, model: str, side: str, tokens: dict[str, int]
) -> None:
    assert {cache.name: cache.tokens for cache in bound(library, model, side).caches} == tokens


def test_groups_are_formed_over_all_stages_and_rows_are_a_stages_own(library: Library) -> None:
    whole, cut = (bound(library, "gemma-3-27b", f"order=BLHNC,pp={pp}") for pp in (1, 4))
    assert [group.members for group in whole.groups] == [group.members for group in cut.groups]
    strides = [{part.stride for unit in place(cut, w) for part in unit.parts} for w in cut.workers]
    page = 16 * 16 * 2 * 128 * 2
    most = [max(sum(n in w.layers for _, n in g.members) for g in cut.groups) for w in cut.workers]
    assert strides == [{page * layers} for layers in most]


def test_compressed_pages_lie_beside_each_other(library: Library) -> None:
    side = bound(library, "deepseek-v4-flash", "order=BLHNC,block=256")
    assert {cache.name: (cache.tokens, cache.padded) for cache in side.caches} == {
        "few": (256, 37440), "many": (256, 1728), "indexer": (256, 8640), "window": (64, 37440),
        "few-compressor": (4, 32832), "indexer-compressor": (4, 8640), "many-compressor": (8, 32832),
    }  # fmt: skip
    row = 21 * 37440 + 20 * 1728 + 21 * 8640
    assert {part.stride for unit in place(side, side.workers[0]) for part in unit.parts} == {row}


@pytest.mark.parametrize(
    ("model", "side", "code", "said"),
    [
        ("gemma-4-26b", "order=BHLNC", "C110", "2 different shapes of pages"),
        ("gemma-4-26b", "order=LHBNC", "C110", "2 different shapes of pages"),
        ("deepseek-v3.2", "order=BHLNC,block=64", "C110", "2 different shapes of pages"),
        ("deepseek-v4-flash", "block=256", "C110", "no block that holds both"),
        ("deepseek-v4-flash", "order=BLHNC,block=64", "C116", "a row per 128 tokens, a block has 64"),
        ("deepseek-v4-flash", "order=BLHNC,block=512", "C110", "kernels for its keys take pages of 256 tokens"),
        ("deepseek-v3.2", "order=BLHNC,block=128", "C110", "kernels for its keys take pages of 64 tokens"),
        ("deepseek-v3.2", "block=32", "C118", "none of 64 divides 32"),
        ("nemotron-3-nano-30b", "attention_block_size=16", "C110", "less than a state"),
        ("llama-3.1-8b", "block_stride_alignment=0", "S004", "whole number from 1"),
        ("qwen3-next-80b", "state_step=0", "C110", "in steps of 0"),
    ],
)
def test_sides_that_it_cannot_run(library: Library, model: str, side: str, code: str, said: str) -> None:
    with pytest.raises(Exception, match=said) as caught:
        bound(library, model, side)
    assert getattr(caught.value, "code", None) == code


@pytest.mark.parametrize(
    ("model", "side", "blocks"),
    [
        # vLLM 0.33 allocated these (tests/fixtures/dumps): a block is 64 tokens by default.
        ("deepseek-v3.2", "tp=8", (64, 64)),
        ("glm-5", "tp=8", (64, 64)),
        ("deepseek-v3.2", "engine=vllm-legacy,tp=8", (64, 64)),
        ("deepseek-v3.2", "tp=8,block=128", (128, 64)),
        ("deepseek-v3.2", "tp=8,block=128,kernel_sizes=64+128", (128, 128)),
        ("minimax-m3", "tp=4", (128, 128)),
        ("deepseek-v3", "tp=8", (16, 16)),
    ],
)
def test_blocks_suit_the_kernels_of_every_cache(
    library: Library, model: str, side: str, blocks: tuple[int, int]
) -> None:
    caches = bound(library, model, side).caches
    assert {(cache.tokens, cache.kernel) for cache in caches} == {blocks}


@pytest.mark.parametrize("order", ["BLHNC", "BLNHC"])
def test_states_lie_inside_blocks_too(library: Library, order: str) -> None:
    side = bound(library, "nemotron-3-nano-30b", f"tp=4,order={order}")
    page = 1056 * 128 * 2 * 2
    assert {part.stride for unit in place(side, side.workers[0]) for part in unit.parts} == {6 * page}


def test_rows_of_sparse_latents_are_whole_between_blocks(library: Library) -> None:
    """Their kernels read rows of 1,152 bytes, which lie whole numbers of them apart."""
    side = bound(library, "deepseek-v3.2", "order=BLHNC,block=64")
    (stride,) = {part.stride for unit in place(side, side.workers[0]) for part in unit.parts}
    used = 61 * 64 * (1152 + 132)
    assert (stride % 1152, stride - used < 1152) == (0, True)


def test_blocks_of_one_page_of_records_lie_side_by_side(library: Library) -> None:
    """Kernels read pages of 64 records, so that only blocks of several pages need whole ones between them."""
    side = bound(library, "deepseek-v3.2", "order=BLHNC,block=64,kv_dtype=fp8_ds_mla")
    (stride,) = {part.stride for unit in place(side, side.workers[0]) for part in unit.parts}
    assert stride == 61 * 64 * (656 + 132)


TWO = """kvplan: 1
model: two
title: Two caches that store the same
dtype: bf16
query_heads: 8
layers: 4
caches:
  a: {kind: gqa, layers: [FIRST], heads: 2, dim: 64}
  b: {kind: gqa, layers: [SECOND], heads: 2, dim: 64}
"""


@pytest.mark.parametrize(
    ("first", "second", "order", "said"),
    [
        ("0, 2", "1, 3", "LBHNC", None),
        ("0, 1", "2, 3", "BLHNC", None),
        ("0, 2", "1, 3", "BLHNC", "2 caches have layers among another's"),
        ("0, 1", "2, 3", "BHLNC", "the layers of a head lie side by side"),
    ],
)
def test_layers_that_store_the_same_lie_side_by_side(
    tmp_path: Path, first: str, second: str, order: str, said: str | None
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO.replace("FIRST", first).replace("SECOND", second))
    library = load([path])
    if said is None:
        assert [group.name for group in bound(library, "two", f"order={order}").groups] == ["a+b"]
        return
    with pytest.raises(Refused, match=said):
        bound(library, "two", f"order={order}")
