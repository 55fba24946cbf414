"""The engine made of options runs every mesh that the issue names, alone and beside a real engine."""

from __future__ import annotations

import pytest
from tests.layouts.shrink import compiled, thinned

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import CompileError
from kvplan.dsl.library import Library, load

PAIRS = [
    ("qwen3-0.6b", "tp=6", "tp=4"),
    ("qwen3-0.6b", "tp=3", "tp=2,copies=round_robin"),
    ("qwen3-0.6b", "tp=2", "tp=3"),
    ("qwen3-0.6b", "tp=16", "tp=6"),
    ("qwen3-0.6b", "tp=16,copies=round_robin", "tp=8"),
    ("qwen3-0.6b", "tp=3,share.attention.head=5+3+0", "tp=2,share.attention.head=0+8"),
    ("qwen3-0.6b", "tp=2,pp=3,layers=20+5+3", "tp=3,pp=2,pipeline=remainder_before_last"),
    ("qwen3-0.6b", "tp=2,block=48", "tp=2,block=32,order=LHBNC"),
    ("qwen3-0.6b", "tp=1,block=128,kernel_block=64", "tp=2,block=64,kernel_block=64"),
    ("qwen3-0.6b", "tp=1,order=shuffled", "tp=2,order=rows,pad=48,align=64"),
    ("qwen3-0.6b", "tp=2,order=BLHNC,rows=shared,align=4096", "tp=1,order=k-and-v"),
    ("qwen3-0.6b", "tp=1,pcp=3,interleave=5", "tp=4,pcp=2,interleave=32"),
    ("deepseek-v3", "tp=4,dcp=3,interleave=1", "tp=2,pcp=2,dcp=2,interleave=48"),
    ("deepseek-v3", "tp=6,dcp=3,dcp_ranks=apart", "tp=2"),
    ("nemotron-3-nano-30b", "tp=4", "tp=8,copies=round_robin"),
]


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


@pytest.mark.parametrize(("model", "prefill", "decode"), PAIRS)
def test_it_runs(library: Library, model: str, prefill: str, decode: str) -> None:
    found = library.model(model)
    small = found if "layers=" in prefill else thinned(found)
    made = compiled(library, small, f"engine=custom,{prefill}", f"engine=custom,{decode}")
    request = sample_request(made.prefill, made.decode, (3, 60), seed=3)
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()
    assert report.bytes


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tp=2,share.attention.head=3+5", "tp=2,share.attention.head=3+5"),
        ("tp=2,share.attention.head=03+5", "tp=2,share.attention.head=3+5"),
        ("tp=2,share.attention.head=4+4", "tp=2"),
        ("tp=2,tokens.attention=32", "tp=2,tokens.attention=32"),
        ("tp=2,tokens.attention=16", "tp=2"),
        ("tp=2,copies=consecutive,form=by_cache", "tp=2"),
    ],
)
def test_keys_are_canonical(library: Library, text: str, key: str) -> None:
    assert bind(library, library.model("qwen3-0.6b"), f"engine=custom,{text}").key == f"engine=custom,{key}"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("engine=custom,tp=2,share.attention.head=3+4", "S017"),
        ("engine=custom,tp=2,share.attention.head=8", "S017"),
        ("engine=custom,tp=2,share.attention.dim=64+64", "S005"),
        ("engine=custom,tp=2,share.nobody.head=4+4", "S005"),
        ("engine=custom,tp=2,tokens.nobody=32", "S005"),
        ("engine=custom,without=attention", "S016"),
        ("engine=custom,without=nobody", "S016"),
        ("tp=2,share.attention.head=3+5", "C110"),
        ("tp=4,pcp=2,dcp=3", "C110"),
    ],
)
def test_what_it_cannot_run_is_named(library: Library, text: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        bind(library, library.model("qwen3-0.6b"), text)
    assert caught.value.code == code


def test_tokens_that_nobody_holds_are_refused(library: Library) -> None:
    for word, sides in (
        ("prefill", ("engine=custom,tp=4,dcp=2", "tp=1")),
        ("decode", ("tp=1", "engine=custom,tp=4,dcp=2")),
        ("decode", ("tp=1", "engine=custom,tp=1,dcp=2")),
    ):
        with pytest.raises(CompileError, match=f"all {word} workers together hold 50%") as caught:
            compile_pair(library, "qwen3-0.6b", *sides)
        assert caught.value.code == "C135"


def test_turns_are_the_same_for_all_caches(library: Library) -> None:
    with pytest.raises(CompileError) as caught:
        bind(library, library.model("qwen3-0.6b"), "engine=custom,pcp=2,interleave.attention=3")
    assert caught.value.code == "S005"


def test_layers_inside_a_block_are_part_of_a_side(library: Library) -> None:
    """Two groups of every second layer, or of either half: other bytes under the same counts."""
    sides = [f"engine=custom,form=by_page,order=BLHNC,assign={assign}" for assign in ("strided", "blocked")]
    found = [compile_pair(library, "gemma-3-27b", side, side).plan for side in sides]
    assert found[0].prefill.digest != found[1].prefill.digest
    assert found[0].digest != found[1].digest


def test_a_long_name_ends_with_the_digest(library: Library) -> None:
    shares = ",".join(["engine=custom", "tp=64", "share.attention.head=" + "+".join(["0"] * 56 + ["1"] * 8)])
    made = compile_pair(library, "qwen3-0.6b", shares, shares)
    assert len(made.path.rpartition("/")[2]) <= 210
    assert made.path.endswith(f"_{made.plan.digest[:8]}.py")


LARGE = "form=by_page,overlay=true,rows=longest"


@pytest.mark.parametrize(
    ("model", "real", "options"),
    [
        ("llama-3.1-8b", "tp=2,order=LHBNC", "order=LHBNC"),
        ("nemotron-3-nano-30b", "tp=2", f"block=2096,{LARGE}"),
        ("qwen3-next-80b", "tp=2", f"block=544,{LARGE}"),
        ("gemma-3-27b", "tp=2", "form=by_page,overlay=true"),
        ("gemma-3-27b", "tp=2,order=BLHNC", "form=by_page,overlay=true,order=BLHNC,rows=shared"),
        ("gpt-oss-20b", "tp=2", "form=by_retention,overlay=true"),
        ("deepseek-v3.2", "tp=2,block=64", "form=by_retention,overlay=true,block=64"),
        ("deepseek-v3", "tp=2,dcp=2", "dcp=2"),
        ("llama-3.1-8b", "engine=gaudi,tp=2", "order=k-and-v,block=128"),
        ("llama-3.1-8b", "engine=sglang,tp=2", "order=planes-by-token,block=1"),
    ],
)
def test_options_can_say_what_an_engine_does(model: str, real: str, options: str) -> None:
    """The same digest: the same bytes in the same places on the same workers."""
    mesh = ",".join(word for word in real.split(",") if word.startswith("tp="))
    sides = (real, f"engine=custom,{mesh},{options}")
    one, other = (compile_pair(load(), model, side, side).plan.prefill for side in sides)
    assert one.digest == other.digest
