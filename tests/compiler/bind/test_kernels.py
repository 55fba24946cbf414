"""Which block sizes attention kernels accept: an engine's `kernels`, by kind, and what suits all caches of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import Refused
from kvplan.dsl.lang.nodes import SizeSet
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError

MODEL = """
kvplan: 1
model: two
title: Two
dtype: bf16
query_heads: 8
layers: 4
caches:
  attention: {kind: gqa, layers: layer < 2, heads: 2, dim: 64}
  latents: {kind: mla, layers: layer >= 2, latent: 512, rope: 64}
"""


def with_kernels(folder: Path, kernels: str) -> Library:
    (folder / "two.yaml").write_text(MODEL)
    (folder / "ours.yaml").write_text(f"kvplan: 1\nengine: ours\nextends: vllm\nkernels: {{{kernels}}}\n")
    return load((), (folder,))


@pytest.mark.parametrize(
    ("kernels", "blocks"),
    [
        ("gqa: 'sizes(32, 64)', mla: multiples(64)", {"attention": 64, "latents": 64}),
        ("gqa: multiples(32), mla: multiples(48)", {"attention": 96, "latents": 96}),
        ("tokens: sizes(128)", {"attention": 128, "latents": 128}),
        ("gqa: sizes(dim), mla: sizes(64)", {"attention": 64, "latents": 64}),
    ],
)
def test_a_block_suits_every_cache(kernels: str, blocks: dict[str, int], tmp_path: Path) -> None:
    library = with_kernels(tmp_path, kernels)
    side = bind(library, library.model("two"), "engine=ours,tp=2,order=BLHNC")
    assert {cache.name: cache.kernel for cache in side.caches} == blocks


SLIDES = """
kvplan: 1
model: slides
title: Slides
dtype: bf16
query_heads: 8
layers: 4
caches:
  attention: {kind: gqa, layers: layer < 2, heads: 2, dim: 128}
  sliding: {kind: gqa, layers: layer >= 2, heads: 2, dim: 64, window: 512}
"""


def test_a_kernel_block_suits_those_that_keep_the_same_tokens(tmp_path: Path) -> None:
    """Blocks suit all caches; windows have a table of their own, and kernels split it as they like."""
    (tmp_path / "slides.yaml").write_text(SLIDES)
    library = with_kernels(tmp_path, "gqa: 'multiples(16) if window > 0 else sizes(64)'")
    caches = bind(library, library.model("slides"), "engine=ours").caches
    assert {cache.name: (cache.tokens, cache.kernel) for cache in caches} == {
        "attention": (64, 64), "sliding": (128, 128),
    }  # fmt: skip


def test_kernels_ask_for_options(tmp_path: Path) -> None:
    """The fp8 record needs kernels of 64 tokens, the default one does not."""
    library = with_kernels(
        tmp_path, "gqa: 'sizes(64) if record == 'fp8' else multiples(16)'".replace("'fp8'", "''fp8''")
    )
    sides = [bind(library, library.model("two"), f"engine=ours,order=BLHNC{more}") for more in ("", ",kv_dtype=fp8")]
    assert [side.caches[0].kernel for side in sides] == [16, 64]


@pytest.mark.parametrize(
    ("kernels", "code", "said"),
    [
        ("gqa: sizes(32), mla: sizes(64)", "C118", "no block size suits .* \\(attention: 32, latents: 64\\)"),
        ("gqa: 64", "C114", "`kernels` of ours is 64, not a set of sizes"),
    ],
)
def test_what_suits_nobody_is_refused(kernels: str, code: str, said: str, tmp_path: Path) -> None:
    library = with_kernels(tmp_path, kernels)
    with pytest.raises(Refused, match=said) as caught:
        bind(library, library.model("two"), "engine=ours,tp=2")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("kernels", "code"),
    [("gqa: sizes(latent)", "E005"), ("gpa: sizes(32)", "K008")],
)
def test_errors_in_the_file_have_their_place(kernels: str, code: str, tmp_path: Path) -> None:
    library = with_kernels(tmp_path, kernels)
    with pytest.raises(DslError) as caught:
        library.engine("ours")
    assert [each.code for each in caught.value.diagnostics] == [code]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (SizeSet(step=16), SizeSet(only=(8, 32, 64)), SizeSet(only=(32, 64))),
        (SizeSet(step=16), SizeSet(step=24), SizeSet(step=48)),
        (SizeSet(only=(16, 32)), SizeSet(only=(32, 64)), SizeSet(only=(32,))),
        (SizeSet(only=(16,)), SizeSet(only=(32,)), None),
    ],
)
def test_what_two_sets_have_in_common(one: SizeSet, other: SizeSet, both: SizeSet | None) -> None:
    assert (one & other, other & one) == (both, both)


def test_caches_of_one_kind_that_share_no_block_are_the_model_s_to_correct(tmp_path: Path) -> None:
    more = (
        "  keys: {kind: indexer, layers: layer < 2, dim: 128}\n  others: {kind: indexer, layers: layer >= 2, dim: 128"
    )
    (tmp_path / "two.yaml").write_text(f"{MODEL}{more}, record: bf16}}\n")
    library = load([tmp_path / "two.yaml"])
    with pytest.raises(Refused, match="no block size suits") as caught:
        bind(library, library.model("two"), "tp=2")
    assert caught.value.help.startswith("correct record of keys and others, of kind indexer, in ")
    assert caught.value.help.endswith("two.yaml")
