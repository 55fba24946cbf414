"""The caches of each worker on an engine's mesh: copied heads, turns of tokens, pipeline stages, overlaid groups."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.placement.shards import shard_intervals
from kvplan.dsl.library import Library, load

ENGINES = ("vllm", "vllm-legacy", "gaudi", "sglang")


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def bound(library: Library, model: str, side: str) -> BoundSide:
    return bind(library, library.model(model), side)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "tp", "heads"),
    [
        ("llama-3.1-8b", 16, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]),
        ("qwen2.5-7b", 28, [n // 7 for n in range(28)]),
    ],
)
def test_copies_of_a_head_are_neighbours(library: Library, engine: str, model: str, tp: int, heads: list[int]) -> None:
    """Worker i of t holds head i * K // t of K, as the engines' weight loaders divide by the number of copies."""
    side = bound(library, model, f"engine={engine},tp={tp}")
    tensor = side.caches[0].tensors[0]
    assert [shard_intervals(side, tensor, worker)["head"] for worker in side.workers] == [(n, n + 1) for n in heads]


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("tp=8,dcp=4", [0, 1, 2, 3, 0, 1, 2, 3]),
        ("engine=vllm-legacy,tp=8,dcp=4,interleave=1", [0, 1, 2, 3, 0, 1, 2, 3]),
        ("tp=2,pcp=4,dcp=4", [0, 0, 1, 1, 2, 2, 3, 3]),
        ("tp=2,pcp=4,dcp=8", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("tp=2,pcp=4", [0, 0, 0, 0, 0, 0, 0, 0]),
        ("engine=vllm-legacy,tp=4,pcp=2,dcp=2,interleave=1", [0, 1, 0, 1, 2, 3, 2, 3]),
        ("engine=custom,tp=4,dcp=2,dcp_ranks=apart", [0, 0, 1, 1]),
    ],
)
def test_turns_of_tokens(library: Library, text: str, turns: list[int]) -> None:
    """Ranks of dcp are neighbours in tp: parallel_state.py reshapes the ranks to rows of dcp."""
    side = bound(library, "deepseek-v3", text)
    assert [worker.token_shard for worker in side.workers] == turns
    assert side.token_shards == max(turns) + 1


@pytest.mark.parametrize(
    ("text", "chunk"),
    [
        ("tp=8,dcp=8", 16),
        ("tp=8,dcp=8,block=64", 64),
        ("tp=8,dcp=8,interleave=1", 1),
        ("tp=8,dcp=8,block=64,interleave=16", 16),
        ("engine=vllm-legacy,tp=8,dcp=8,interleave=1", 1),
        ("engine=vllm-legacy,tp=8,dcp=8,block=64,interleave=64", 64),
    ],
)
def test_tokens_of_a_turn(library: Library, text: str, chunk: int) -> None:
    assert bound(library, "deepseek-v3", text).interleave_tokens == chunk


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engine=vllm-legacy,tp=8,dcp=8", "give interleave=1"),
        ("engine=vllm-legacy,tp=8,pcp=2", "give interleave=1"),
        ("engine=vllm-legacy,tp=8,dcp=8,interleave=24", "an interleave of 24 tokens does not divide a block of 16"),
        ("engine=vllm-legacy,tp=8,dcp=8,interleave=32", "an interleave of 32 tokens does not divide a block of 16"),
        ("tp=8,dcp=8,interleave=24", "an interleave of 24 tokens does not divide a block of 16"),
    ],
)
def test_turns_that_an_engine_does_not_take(library: Library, text: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        bound(library, "deepseek-v3", text)
    assert caught.value.code == "C110"


# Results of get_pp_indices in each engine's distributed/utils.py for 61, 62 and 32 layers.
CUTS = [
    ("deepseek-v3", 2, [31, 30], [30, 31]),
    ("deepseek-v3", 3, [20, 21, 20], [20, 20, 21]),
    ("deepseek-v3", 4, [15, 15, 16, 15], [15, 15, 15, 16]),
    ("deepseek-v3", 8, [7, 7, 8, 8, 8, 8, 8, 7], [7, 7, 7, 8, 8, 8, 8, 8]),
    ("gemma-3-27b", 4, [15, 16, 16, 15], [15, 15, 16, 16]),
    ("llama-3.1-8b", 3, [11, 11, 10], [10, 11, 11]),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("model", "pp", "vllm", "sglang"), CUTS)
def test_a_pipeline_is_cut_as_the_engine_does(
    library: Library, engine: str, model: str, pp: int, vllm: list[int], sglang: list[int]
) -> None:
    layers = sglang if engine == "sglang" else vllm
    side = bound(library, model, f"engine={engine},pp={pp}")
    stages = [[layer for layer in worker.layers if layer < sum(layers)] for worker in side.workers]
    assert [len(stage) for stage in stages] == layers
    assert [layer for stage in stages for layer in stage] == list(range(sum(layers)))


@pytest.mark.parametrize(
    ("engine", "shared"), [("vllm", True), ("vllm-legacy", True), ("gaudi", False), ("sglang", False)]
)
def test_whether_groups_share_memory(library: Library, engine: str, shared: bool) -> None:
    """vLLM's groups begin at byte 0 of one allocation, so that one id is never in two of them; others have pools."""
    side = bound(library, "gemma-3-27b", f"engine={engine}")
    arenas = [group.arena for group in side.groups]
    assert len(set(arenas)) == (1 if shared else len(arenas))
    assert len(arenas) > 1 or engine == "gaudi"


def test_an_axis_is_split_over_an_axis_of_the_mesh(tmp_path: Path) -> None:
    kind, model = (
        files("kvplan.layouts").joinpath(name).read_text() for name in ("kinds/gqa.yaml", "models/phi-4.yaml")
    )
    kind = kind.replace("kind: gqa", "kind: ours", 1).replace("split: {head: tp}", "split: {head: pcp}")
    own = {"ours": kind, "mine": model.replace("model: phi-4", "model: mine", 1).replace("gqa", "ours")}
    for name, text in own.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    library = load((), (tmp_path,))
    with pytest.raises(BadInput, match="axis 'head' is split over 'pcp', no mesh axis") as caught:
        bind(library, library.model("mine"), "engine=sglang,tp=2")
    assert (caught.value.code, caught.value.help) == ("S034", "did you mean 'pp'?")
