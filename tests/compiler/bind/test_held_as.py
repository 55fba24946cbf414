"""A model that its engine's defaults cannot hold: the refusal has the sides, and the command, with which it works."""

from __future__ import annotations

import re

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind, held_as
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import load

LIBRARY = load()
SAID = [(name, engine) for name in LIBRARY.models for engine in LIBRARY.model(name).sides]


@pytest.mark.parametrize(("name", "engine"), SAID)
def test_what_a_model_says_of_an_engine_is_so(name: str, engine: str) -> None:
    model, side = LIBRARY.model(name), f"engine={engine}"
    with pytest.raises(Refused) as refused:
        bind(LIBRARY, model, side)
    other = held_as(LIBRARY, model, side)
    assert refused.value.help.endswith(f"the side {other} works")
    assert bind(LIBRARY, model, other).caches


# Outputs of encoders are in a pool beside the engine, never in its own pages.
POOLED = LIBRARY.family("qwen3-vl-encoder")


@pytest.mark.parametrize("name", [name for name in LIBRARY.models if name not in POOLED])
def test_the_default_engine_holds_every_model_or_says_how(name: str) -> None:
    model = LIBRARY.model(name)
    try:
        bind(LIBRARY, model, "tp=1")
    except Refused:
        assert bind(LIBRARY, model, held_as(LIBRARY, model, "tp=1")).caches


@pytest.mark.parametrize(("prefill", "decode"), [("tp=4", "tp=2"), ("tp=2,order=BLHNC,block=256", "tp=1")])
def test_the_command_in_a_refusal_works(prefill: str, decode: str) -> None:
    with pytest.raises(Refused) as refused:
        compile_pair(LIBRARY, "deepseek-v4-flash", prefill, decode)
    words = re.fullmatch(r"this works: kvplan compile (\S+) --prefill (\S+) --decode (\S+)", refused.value.help)
    assert words
    model, there, here = words.groups()
    assert compile_pair(LIBRARY, model, there, here).plan.reads


def test_a_refusal_that_keys_do_not_mend_stays_as_it_is() -> None:
    with pytest.raises(Refused) as refused:
        compile_pair(LIBRARY, "deepseek-v4-flash", "engine=sglang", "tp=2,order=BLHNC,block=256")
    assert "works" not in refused.value.help
    assert held_as(LIBRARY, LIBRARY.model("llama-3.1-8b"), "tp=3") == ""
    assert {held_as(LIBRARY, LIBRARY.model(name), "tp=1") for name in POOLED} == {""}
