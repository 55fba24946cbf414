"""Advice: the settings that are compared, in the engine's words; figures are those of plans with those settings."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.cost.profile import transfer_us, wire_us
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.explain.advise import Advice, AdvisedPair, advise, worth
from kvplan.compiler.explain.matrix import cost
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.machine import MachineProfile

MODEL, PREFILL, DECODE = "toy", "tp=2,engine=small", "tp=1,order=LBNHC,engine=small"
ENGINE = """\
kvplan: 1
engine: small
title: An engine with two orders and two blocks
extends: custom
choices:
  order: {values: [LBHNC, LBNHC], setting: {variable: ORDER, words: {LBHNC: heads, LBNHC: tokens}}}
  block: {values: [16, 64], setting: {flag: --block}}
"""
TOY = """\
kvplan: 1
model: toy
title: A toy
dtype: bf16
query_heads: 8
layers: 2
caches:
  attention: {kind: gqa, layers: all, heads: 4, dim: 64}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder: Path = tmp_path_factory.mktemp("layouts")
    for name, text in (("small", ENGINE), ("toy", TOY)):
        (folder / f"{name}.yaml").write_text(text)
    return load([], [folder])


@pytest.fixture(scope="module")
def profile(library: Library) -> MachineProfile:
    return library.machine(library.default_machine)


@pytest.fixture(scope="module")
def advice(library: Library, profile: MachineProfile) -> Advice:
    return advise(library, MODEL, PREFILL, DECODE, profile)


def test_figures_are_those_of_the_plan_with_these_sides(
    library: Library, profile: MachineProfile, advice: Advice
) -> None:
    direct = [each for each in (advice.now, *advice.others) if each.strategy == "direct"]
    for each in direct:
        facts = compile_pair(library, MODEL, each.prefill, each.decode).facts
        assert (each.descriptors, each.bytes) == (cost(facts).descriptors, cost(facts).bytes)
        # One decode worker has all of it.
        assert each.us == pytest.approx(transfer_us(profile, each.descriptors, each.bytes))


def test_a_stage_takes_what_the_plan_says(library: Library, profile: MachineProfile, advice: Advice) -> None:
    staged = next(each for each in advice.others if each.strategy == "unpack" and not each.changes)
    (move,) = compile_pair(library, MODEL, PREFILL, DECODE, {"strategy": "auto"}).facts.moves
    stage = next(stage for stage in move.staged if stage.strategy == "unpack")
    assert (staged.descriptors, staged.bytes) == (stage.descriptors, stage.bytes)
    assert staged.us == pytest.approx(transfer_us(profile, 0, 0) + stage.us)


def test_the_slowest_decode_worker_counts(library: Library, profile: MachineProfile) -> None:
    now = advise(library, MODEL, PREFILL, "tp=2,engine=small", profile).now
    assert now.us == pytest.approx(transfer_us(profile, 0, 0) + wire_us(profile, now.descriptors // 2, now.bytes // 2))


def test_either_side_by_itself_and_both_alike_are_compared(advice: Advice) -> None:
    sides = {(each.prefill, each.decode) for each in (advice.now, *advice.others)}
    orders, blocks = ("", ",order=LBNHC"), ("", ",block=64")
    prefills = {f"{PREFILL}{order}{block}" for order, block in product(orders, blocks)}
    assert {prefill for prefill, _ in sides} == prefills
    assert {(prefill, DECODE) for prefill in prefills} < sides
    both = {("tp=2,engine=small,block=64", "tp=1,order=LBHNC,engine=small,block=64")}
    assert both < sides
    # Now 4 sides of prefill, 3 more of decode, and equal settings of both: heads and 64, or tokens and 64.
    assert len(sides) == 4 + 3 + 2


def test_changes_are_told_in_the_engines_words_and_in_those_of_the_side(advice: Advice) -> None:
    every = {(c.side, c.option, c.setting, c.now, c.then, c.alias) for each in advice.others for c in each.changes}
    assert every == {
        ("prefill", "order", "ORDER", "heads", "tokens", ""),
        ("prefill", "block", "--block", "16", "64", ""),
        ("decode", "order", "ORDER", "tokens", "heads", "LBNHC"),
        ("decode", "block", "--block", "16", "64", ""),
    }


def test_the_fastest_comes_first_and_what_wins_nothing_is_not_worth_it(advice: Advice) -> None:
    assert [each.us for each in advice.others] == sorted(each.us for each in advice.others)
    assert worth(advice)
    for each in worth(advice):
        fewer = [other.us for other in (advice.now, *advice.others) if len(other.changes) < len(each.changes)]
        assert each.us < 0.99 * min(fewer, default=advice.now.us)


def test_of_equal_times_fewer_changes_are_worth_it() -> None:
    def pair(us: float, *changes: object) -> AdvisedPair:
        return AdvisedPair("p", "d", "direct", changes, 1, 1, us)  # type: ignore[arg-type]

    now, one, two, more = pair(100), pair(50, 1), pair(49.9, 1, 2), pair(30, 1, 2, 3)
    assert worth(Advice(now, (more, two, one), 0, ("p", "d"))) == [one, more]
    assert worth(Advice(now, (pair(99.5, 1),), 0, ("p", "d"))) == []


def test_a_refused_pair_is_refused_and_a_refused_setting_is_counted(library: Library, profile: MachineProfile) -> None:
    with pytest.raises(Refused):
        advise(library, MODEL, PREFILL, f"{DECODE},kv_dtype=fp8", profile)
    with pytest.raises(BadInput, match="S026"):
        advise(library, MODEL, PREFILL, f"{DECODE},blocks=7", profile)
    sides = "tp=1,kv_dtype=bf16,isa=VEC,engine=vllm-cpu"
    assert advise(library, "llama-3.1-8b", sides, sides, profile).refused > 0
