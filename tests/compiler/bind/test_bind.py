"""Bind: derived numbers, canonical keys, and every bad side ends in a named error."""

from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import BadInput, CompileError, Refused
from kvplan.dsl.library import Library, load

FP8 = "kv_dtype=fp8,kernel_block=16"


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


@pytest.mark.parametrize(
    ("side", "tokens", "kernel", "ratio"),
    [
        (f"tp=4,{FP8}", 2096, 16, 131),
        (f"tp=1,{FP8}", 4176, 16, 261),
        ("tp=4", 1056, 1056, 1),
        ("tp=1", 2096, 2096, 1),
        ("tp=1,draft_tokens=1,kernel_block=16,kv_dtype=fp8", 262 * 16, 16, 262),
    ],
)
def test_a_hybrids_blocks_are_derived(library: Library, side: str, tokens: int, kernel: int, ratio: int) -> None:
    group = bind(library, library.model("nemotron-3-nano-30b"), side).groups[0]
    assert (group.tokens, group.kernel, group.ratio) == (tokens, kernel, ratio)


def test_layers_form_strided_groups_of_the_smallest_bucket(library: Library) -> None:
    groups = bind(library, library.model("nemotron-3-nano-30b"), "tp=1").groups
    assert [(g.name, len(g.members)) for g in groups] == [
        ("attention", 6), ("mamba.0", 6), ("mamba.1", 6), ("mamba.2", 6), ("mamba.3", 5)
    ]  # fmt: skip
    assert [layer for _, layer in groups[1].members] == [0, 9, 18, 28, 37, 46]
    by_cache = bind(library, library.model("nemotron-3-nano-30b"), "tp=1,groups=by_cache").groups
    assert [(g.name, len(g.members), g.arena) for g in by_cache] == [("attention", 6, 0), ("mamba", 23, 0)]


@pytest.mark.parametrize(
    ("model", "cache", "keep"), [("gemma-3-27b", "sliding", 1024 - 1), ("gpt-oss-20b", "sliding", 128 - 1)]
)
def test_the_next_token_sees_a_window_that_has_itself_in_it(
    library: Library, model: str, cache: str, keep: int
) -> None:
    needs = {c.name: c.needs.keep for c in bind(library, library.model(model), "tp=1").caches}
    assert (needs["full"], needs[cache]) == (None, keep)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tp=2,order=hnd,block=16", "tp=2"),
        ("order=nhd,tp=2", "tp=2,order=LBNHC"),
        ("pp=2,layers=16+16", "tp=1,pp=2"),
        ("pp=2,layers=15+17", "tp=1,pp=2,layers=15+17"),
        ("tp=2,kernel_sizes=32+16+16,block=32", "tp=2,block=32,kernel_sizes=16+32"),
        ("tp=2,kernel_block=16", "tp=2"),
        ("tp=2,blocks=64", "tp=2"),
    ],
)
def test_keys_are_canonical(library: Library, text: str, key: str) -> None:
    assert bind(library, library.model("llama-3.1-8b"), text).key == key


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("gemma-3-27b", "tp=1,tokens.full=32,tokens.sliding=32"),
        ("gemma-3-27b", "tp=1,groups=by_cache,tokens.full=64,tokens.sliding=64"),
        ("gemma-3-27b", "tp=1,tokens.full=32,tokens.sliding=32,kernel_block=16"),
        ("deepseek-v4-flash", "tp=1,order=BLHNC,kernel_sizes=128,tokens=128"),
        ("qwen3-next-80b", "tp=1,kernel_block=16,ratio=34"),
    ],
)
def test_a_key_says_what_was_overridden(library: Library, model: str, text: str) -> None:
    """Overrides that make each other come out as derived are no defaults: without all of them the side is another."""
    side = bind(library, library.model(model), text)
    assert side.notes
    assert bind(library, library.model(model), side.key) == side


@pytest.mark.parametrize(
    ("model", "text", "code"),
    [
        ("llama-3.1-8b", "tpp=2", "S005"),
        ("llama-3.1-8b", "tp=x", "S004"),
        ("llama-3.1-8b", "tp=0", "S004"),
        ("llama-3.1-8b", "tp=-1", "S004"),
        ("llama-3.1-8b", "tp", "S001"),
        ("llama-3.1-8b", "tp=1,tp=2", "S002"),
        ("llama-3.1-8b", "tp=1/2", "S003"),
        ("llama-3.1-8b", "order=ndh", "S009"),
        ("llama-3.1-8b", "tp=999999999999", "S011"),
        ("llama-3.1-8b", "tp=3", "C110"),
        ("llama-3.1-8b", "block=0", "C110"),
        ("llama-3.1-8b", "block=24", "C118"),
        ("llama-3.1-8b", "kernel_block=7", "C113"),
        ("llama-3.1-8b", "kernel_block=32", "C113"),
        ("llama-3.1-8b", "ratio=2", "C113"),
        ("llama-3.1-8b", "kv_dtype=fp8_ds_mla", "S012"),
        ("llama-3.1-8b", "pp=33", "C111"),
        ("llama-3.1-8b", "pp=2,layers=1+2", "S007"),
        ("llama-3.1-8b", "groups=x", "S006"),
        ("nemotron-3-nano-30b", "tp=16", "C110"),
        ("nemotron-3-nano-30b", "order=BHLNC", "C110"),
        ("nemotron-3-nano-30b", "draft_tokens=999999999999", "C106"),
    ],
)
def test_bad_sides_are_named(library: Library, model: str, text: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        bind(library, library.model(model), text)
    assert caught.value.code == code
    assert isinstance(caught.value, BadInput if code[0] == "S" else Refused)
    assert caught.value.help or code == "C106"


KIND = """kvplan: 1
kind: halves
title: Tensors that are split otherwise
params: {{heads: {{doc: heads}}, dim: {{doc: elements}}}}
store: tokens
tensors:
  k: {{axes: {{head: heads, token: ~, dim: dim}}, dtype: bf16, split: {{head: tp}}}}
  v: {{axes: {{head: {heads}, token: ~, dim: dim}}, dtype: bf16{split}}}
storage:
  LBHNC: layer {{ block {{ head {{ token {{ k[dim] }} }} head {{ token {{ v[dim] }} }} }} }}
"""
HALVES = """kvplan: 1
model: both
title: Both
dtype: bf16
layers: 1
caches:
  a: {kind: halves, layers: all, heads: 4, dim: 4}
"""


@pytest.mark.parametrize(
    ("heads", "split", "said"),
    [
        ("heads", ", split: {head: dcp}", "is split over tp and is split over dcp"),
        ("heads", "", "is split over tp and is split over nothing"),
        ("2 * heads", ", split: {head: tp}", "has 4 items and has 8 items"),
    ],
)
def test_tensors_of_a_cache_share_an_axis_out_alike(heads: str, split: str, said: str, tmp_path: Path) -> None:
    """One interval says what a worker holds of an axis, in a plan and to whom checks sums."""
    (tmp_path / "halves.yaml").write_text(KIND.format(heads=heads, split=split))
    (tmp_path / "both.yaml").write_text(HALVES)
    library = load((), (tmp_path,))
    with pytest.raises(BadInput, match=said) as error:
        bind(library, library.model("both"), "engine=custom,tp=2")
    assert error.value.code == "S013"


def test_an_axis_of_more_items_than_any_cache_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(HALVES.replace("halves", "gqa").replace("dim: 4", "dim: 5000000"))
    library = load((), (tmp_path,))
    with pytest.raises(BadInput, match=r"S012.*5000000 items"):
        bind(library, library.model("both"), "engine=custom,tp=2")


SMALL = """kvplan: 1
model: small
title: Small latents
dtype: bf16
query_heads: 4
layers: 1
caches:
  a: {kind: mla, layers: all, latent: 384, rope: 32%s}
"""


@pytest.mark.parametrize(
    ("engine", "kv_dtype"),
    [
        *((engine, "fp8_ds_mla") for engine in ("vllm", "vllm-legacy", "sglang", "custom")),
        *((engine, "nvfp4_ds_mla") for engine in ("vllm", "custom")),
    ],
)
def test_a_side_cannot_choose_a_record_for_other_sizes(tmp_path: Path, engine: str, kv_dtype: str) -> None:
    (tmp_path / "small.yaml").write_text(SMALL % "")
    known = load([tmp_path / "small.yaml"])
    with pytest.raises(Refused) as caught:
        bind(known, known.model("small"), f"engine={engine},kv_dtype={kv_dtype}")
    assert caught.value.code == "C110"
    assert f"cache 'a': {kv_dtype} is for 512 + 64 elements, not 384 + 32" in caught.value.message
    assert f"kv_dtype={kv_dtype}" in caught.value.help


def test_a_file_may_give_a_record_for_other_sizes(tmp_path: Path) -> None:
    """`kvplan check` warns of that one."""
    (tmp_path / "small.yaml").write_text(SMALL % ", record: fp8_ds_mla")
    known = load([tmp_path / "small.yaml"])
    assert bind(known, known.model("small"), "tp=1").caches
