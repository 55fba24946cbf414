"""Keys of a side: the engine's own flags are taken for them, what no command can use is refused, guesses are near."""

from __future__ import annotations

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.keys import check_pool, side_keys, side_words
from kvplan.doctor.examine import examined
from kvplan.dsl.library import load

LIBRARY = load()
MODEL = LIBRARY.model("llama-3.1-8b")


@pytest.mark.parametrize(
    ("engine", "said", "meant"),
    [
        ("vllm", "--tensor-parallel-size=2,block_size=32", "tp=2,block=32"),
        ("vllm", "tensor_parallel_size=2,kv_cache_dtype=fp8", "tp=2,kv_dtype=fp8"),
        ("vllm", "VLLM_KV_CACHE_LAYOUT=NHD,num_speculative_tokens=1", "order=nhd,draft_tokens=1"),
        ("vllm-legacy", "VLLM_KV_CACHE_LAYOUT=NHD,--block-size=32", "order=nhd,block=32"),
        ("gaudi", "tensor-parallel-size=2,block-size=256", "tp=2,block=256"),
        ("sglang", "--tp-size=2,page_size=64,kv-cache-dtype=fp8_e4m3", "tp=2,block=64,kv_dtype=fp8"),
    ],
)
def test_flags_of_an_engine_are_keys(engine: str, said: str, meant: str) -> None:
    one, other = (bind(LIBRARY, MODEL, f"engine={engine},{text}") for text in (said, meant))
    assert one == other


def test_a_side_is_told_by_keys_of_its_own() -> None:
    assert side_words(LIBRARY.engine("vllm"), "engine=vllm,block_size=32") == "engine=vllm,block=32"
    assert examined(LIBRARY, MODEL, "tensor_parallel_size=2").text == "tp=2"


def test_a_key_and_its_flag_are_one_key() -> None:
    with pytest.raises(BadInput, match=r"'block' is given twice .* as block_size"):
        side_keys(LIBRARY.engine("vllm"), "block=16,block_size=32")


def test_vllm_s_flag_for_the_type_of_states_is_led_to_the_model_s_file() -> None:
    with pytest.raises(BadInput, match="the model's file says it: ssm_dtype of the cache"):
        bind(LIBRARY, MODEL, "engine=vllm,--mamba-ssm-cache-dtype=float32")


@pytest.mark.parametrize("engine", ["vllm", "vllm-legacy", "gaudi", "sglang"])
@pytest.mark.parametrize("flag", ["dp", "data_parallel_size", "ep"])
def test_a_flag_that_no_cache_depends_on_says_why(engine: str, flag: str) -> None:
    with pytest.raises(BadInput) as caught:
        bind(LIBRARY, MODEL, f"engine={engine},{flag}=2")
    assert caught.value.code == "S005"
    assert LIBRARY.engine(engine).aside[flag] in str(caught.value)


@pytest.mark.parametrize(
    ("key", "near"), [("page", "did you mean 'block'?"), ("size", "allowed: "), ("kv", "allowed: ")]
)
def test_a_word_of_one_flag_alone_means_its_key(key: str, near: str) -> None:
    with pytest.raises(BadInput) as caught:
        bind(LIBRARY, MODEL, f"engine=sglang,{key}=16")
    assert near in caught.value.help


@pytest.mark.parametrize(
    ("key", "near"), [("blok", "block"), ("tpp", "tp"), ("ordre", "order"), ("cp", ""), ("page_size", ""), ("xy", "")]
)
def test_a_guess_is_near(key: str, near: str) -> None:
    with pytest.raises(BadInput) as caught:
        bind(LIBRARY, MODEL, f"{key}=2")
    assert (f"did you mean '{near}'" if near else "allowed: ") in caught.value.help
    assert near or "explain vllm" in caught.value.help


@pytest.mark.parametrize("text", ["tp=2,blocks=32", "tp=1/2,blocks=32"])
def test_a_pool_is_refused_where_nobody_asks_for_it(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_pool(text)
    assert caught.value.code == "S026"
