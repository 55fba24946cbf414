"""Loads of any length: those of the cost model where they are counted, along lines between them."""

from __future__ import annotations

import pytest
from tests.traffic.pairs import linear

from kvplan.compiler.api import compile_pair
from kvplan.compiler.cost.links import link_loads
from kvplan.dsl.library import load
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.plan.types import Plan
from kvplan.traffic.loads import LENGTHS, Loads, TransferLoads, loads_of


def planned(model: str, prefill: str, decode: str, strategy: str = "direct") -> tuple[Plan, MachineProfile]:
    library = load()
    made = compile_pair(library, model, prefill, decode, {"strategy": strategy})
    return made.plan, library.machine(library.default_machine)


@pytest.mark.parametrize("tokens", [0, 1, 63, 64, 700, 1024, 5000, 16384, 100_000])
def test_what_grows_with_tokens_is_exact_at_any_length(tokens: int) -> None:
    (found,), (meant,) = TransferLoads(linear).of(tokens), linear(tokens)
    assert (found.descriptors, found.bytes) == pytest.approx((meant.descriptors, meant.bytes))


def test_a_length_is_counted_once() -> None:
    counted: list[int] = []

    def count(tokens: int) -> Loads:
        counted.append(tokens)
        return linear(tokens)

    loads = TransferLoads(count)
    for tokens in (100, 200, 70, 1024, 1024, 9_000_000):
        loads.of(tokens)
    assert sorted(counted) == [*LENGTHS]


@pytest.mark.parametrize("tokens", [17, 72, 200, 999, 5001])
@pytest.mark.parametrize("decode", ["tp=1", "tp=1,order=nhd", "tp=1,block=32", "tp=2"])
def test_a_last_block_that_is_partly_filled_takes_more_requests(tokens: int, decode: str) -> None:
    plan, profile = planned("qwen3-0.6b", "tp=1", decode)
    (found, *_), (meant, *_) = loads_of(plan, profile, "pull").of(tokens), link_loads(plan, profile, "unpack", tokens)
    assert found.bytes == pytest.approx(meant.bytes)
    # A line between whole blocks is 208 requests short of what tp=1 takes.
    assert found.descriptors == pytest.approx(meant.descriptors, abs=115 if "block" in decode else 17)


def test_a_window_and_a_state_do_not_grow() -> None:
    plan, profile = planned("nemotron-3-nano-30b", "tp=1", "tp=1")
    loads = loads_of(plan, profile, "pull")
    nothing, some, more = (loads.of(tokens)[0].bytes for tokens in (0, 4096, 8192))
    assert 0 < nothing < some
    assert more - some == pytest.approx(some - nothing, rel=1e-6)
    plan, profile = planned("gpt-oss-20b", "tp=1", "tp=1")
    half, whole = (link_loads(plan, profile, "unpack", tokens)[0].bytes for tokens in (1024, 2048))
    assert whole < 1.9 * half


def test_links_are_of_who_reads_whom_and_who_writes_packs() -> None:
    plan, profile = planned("llama-3.1-8b", "tp=4", "tp=2,order=nhd", "auto")
    loads = loads_of(plan, profile, "pull").of(1024)
    assert [(load.prefill, load.decode) for load in loads] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    plan, profile = planned("llama-3.1-8b", "tp=2", "tp=2,order=nhd", "auto")
    pull, push = (loads_of(plan, profile, mode).of(1024) for mode in ("pull", "push"))
    assert all(load.copy_us > 0 for load in (*pull, *push))
    assert sum(load.bytes for load in push) == 1024 * 2 * 32 * 8 * 128 * 2
