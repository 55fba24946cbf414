"""Strategies: what goes by way of a stage, and what that costs beside going direct."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.cost.cost import ends_of, plan_cost
from kvplan.compiler.cost.profile import copy_us
from kvplan.compiler.cost.strategy import StrategyCost, by_strategy, costs, staged
from kvplan.compiler.errors import BadInput
from kvplan.dsl.library import load
from kvplan.dsl.schema.machine import CopyRate, MachineProfile
from kvplan.dsl.text.diagnostics import DslError
from kvplan.plan.types import PageRange, Plan

LIBRARY = load()
SLOW_REQUESTS = MachineProfile(
    name="slow-requests", title="Slow", transfer_us=0.0, slice_us=0.0, descriptor_us=10.0, wire=1e9,
    copies=(CopyRate(16, 1e9), CopyRate(1024, 2e9)),
)  # fmt: skip
SLOW_COPIES = replace(SLOW_REQUESTS, descriptor_us=0.01, copies=(CopyRate(16, 1e6),))


def made(prefill: str, decode: str, strategy: str = "direct", model: str = "llama-3.1-8b") -> Compiled:
    return compile_pair(LIBRARY, model, prefill, decode, {"strategy": strategy})


def ranges(plan: Plan) -> set[tuple[str, PageRange]]:
    tables = {read.table for reads in plan.reads for read in reads}
    return {(name, part) for table in tables for name in ("unpack", "pack") for part in getattr(table, name)}


def test_heads_first_is_unpacked_where_tokens_come_first() -> None:
    plan = made("tp=4,order=hnd", "tp=2,order=nhd", "auto").plan
    # Each decode page is filled by two workers, row by row: neither can pack it.
    assert ranges(plan) == {("unpack", PageRange(bytes=16 * 2 * 512, planes=32))}


def test_a_reader_of_some_heads_has_them_packed() -> None:
    plan = made("tp=2,order=nhd", "tp=4,order=hnd", "auto").plan
    whole, heads = 16 * 4 * 512, 2 * 512
    unpacked, packed = PageRange(bytes=whole - heads, planes=32), PageRange(bytes=whole // 2, planes=32)
    assert ranges(plan) == {("pack", packed)}
    assert ranges(made("tp=2,order=nhd", "tp=4,order=hnd", "unpack").plan) == {("unpack", unpacked)}


def test_a_reader_of_all_heads_unpacks_and_a_writer_packs() -> None:
    """Either copies the same and moves the same: who posts does both, and nobody has to be asked."""
    plan = made("tp=2,order=nhd", "tp=2,order=hnd", "auto").plan
    whole = PageRange(bytes=16 * 4 * 512, planes=32)
    assert ranges(plan) == {("unpack", whole), ("pack", whole)}


def test_equal_sides_go_direct_whatever_the_strategy_may_be() -> None:
    assert ranges(made("tp=2", "tp=2", "auto").plan) == set()


def test_the_profile_decides() -> None:
    plan = made("tp=4,order=hnd", "tp=2,order=nhd").plan
    assert ranges(staged(plan, "auto", SLOW_REQUESTS))
    assert not ranges(staged(plan, "auto", SLOW_COPIES))
    assert ranges(staged(plan, "unpack", SLOW_COPIES))


def test_costs_are_requests_bytes_and_copies() -> None:
    plan = staged(made("tp=4,order=hnd", "tp=2,order=nhd").plan, "unpack", SLOW_REQUESTS)
    read = plan.reads[0][0]
    cost = costs(read.table, ends_of(plan)(0, read), SLOW_REQUESTS)
    size = 1024 * 32 * 2 * 512
    assert (cost["direct"].descriptors, cost["direct"].bytes) == (1024 * 32 * 2, size)
    assert (cost["unpack"].descriptors, cost["unpack"].bytes) == (64 * 32, size)
    assert cost["direct"].us == pytest.approx(1024 * 32 * 2 * 10 + size / 1e3)
    assert cost["unpack"].us == pytest.approx(64 * 32 * 10 + size / 1e3 + copy_us(SLOW_REQUESTS, size, 512))


def test_what_has_no_stage_by_one_strategy_goes_by_the_other() -> None:
    """The runtime does the same: decode unpacks pushed data that cannot be packed."""
    direct, unpack, pack = (StrategyCost(requests, 0, 0.0) for requests in range(3))
    assert by_strategy({"direct": direct, "unpack": unpack}, "pack") is unpack
    assert by_strategy({"direct": direct, "pack": pack}, "unpack") is pack
    assert by_strategy({"direct": direct, "unpack": unpack, "pack": pack}, "pack") is pack
    assert by_strategy({"direct": direct}, "pack") is direct


def test_the_header_has_both_figures() -> None:
    found = made("tp=4,order=hnd", "tp=2,order=nhd", "auto")
    text = " ".join(found.text.split())
    assert "; with unpack 67,108,864 B in 4,096 descriptors, predicted to take" in text
    assert "ms instead of" in text
    assert "Strategy: auto on" in text


def test_direct_plans_are_what_they_were() -> None:
    direct, auto = made("tp=2", "tp=2").plan, made("tp=2", "tp=2", "auto").plan
    assert replace(auto, options=direct.options, digest=direct.digest) == direct


def test_a_strategy_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadInput, match="strategy=staged"):
        made("tp=2", "tp=2", "staged")


def test_a_machine_is_named_where_it_is_not_the_default_one() -> None:
    name = LIBRARY.default_machine
    found = compile_pair(LIBRARY, "llama-3.1-8b", "tp=2", "tp=2", {"strategy": "auto", "machine": name})
    assert f"--machine {name} --strategy auto" in " ".join(found.text.split())
    with pytest.raises(BadInput, match="nothing to be chosen"):
        compile_pair(LIBRARY, "llama-3.1-8b", "tp=2", "tp=2", {"machine": name})
    with pytest.raises(DslError, match="no-such"):
        compile_pair(LIBRARY, "llama-3.1-8b", "tp=2", "tp=2", {"strategy": "auto", "machine": "no-such"})


def test_a_plan_says_its_strategy_also_without_a_machine() -> None:
    staged_, direct = (plan_cost(made("tp=4,order=hnd", "tp=2,order=nhd", way).plan) for way in ("unpack", "direct"))
    assert staged_.strategy.startswith("unpack, with `unpack`, ranges of prefill pages are moved whole")
    assert direct.strategy.startswith("direct, every span")
