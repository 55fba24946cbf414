"""Changes between plans that the compiler made: nothing for the same plan, else what a reviewer has to know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.explain.contract import expected
from kvplan.compiler.explain.diff.changes import Change, changes
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.types import Nest, Plan, Table


@cache
def plan(prefill: str, decode: str, model: str = "llama-3.1-8b", elect: str = "one") -> Plan:
    return compile_pair(load(), model, prefill, decode, {"elect": elect}).plan


def rules(found: list[Change]) -> set[str]:
    return {change.rule for change in found}


def of(rule: str, found: list[Change]) -> list[Change]:
    return [change for change in found if change.rule == rule]


def test_the_same_plan_does_not_differ() -> None:
    assert changes(plan("tp=4", "tp=2"), plan("tp=4", "tp=2,block=16,order=hnd")) == []


@pytest.mark.parametrize(
    ("new", "changed"),
    [
        ("tp=2,order=nhd", {"OPTION", "AXIS_ORDER", "STEPS", "SPANS", "REQUESTS"}),
        (
            "tp=2,block=32",
            {"OPTION", "BLOCK_TOKENS", "PAGE_BYTES", "BLOCK_STRIDE", "STEPS", "GROUP_PAIRS", "SPANS", "REQUESTS"},
        ),
        ("tp=4", {"OPTION", "WORKERS", "HOLDS", "PAGE_BYTES", "BLOCK_STRIDE", "READERS", "READS", "SPANS"}),
    ],
)
def test_what_changes_is_named(new: str, changed: set[str]) -> None:
    assert rules(changes(plan("tp=4", "tp=2"), plan("tp=4", new))) == changed


def test_an_option_can_change_the_contract_alone() -> None:
    found = changes(plan("tp=16", "tp=8"), plan("tp=16", "tp=8", elect="spread"))
    assert rules(found) == {"COMPILE_OPTION", "READERS", "READS", "SPANS_CUT", "TOLD"}


def test_a_single_moved_span_is_seen() -> None:
    old = plan("tp=4", "tp=2")
    read = old.reads[1][0]
    nest = read.table.page[0]
    table = Table((Nest(nest.tensors, nest.prefill, (0, 2), nest.bytes, nest.loops),), read.table.token)
    new = replace(old, digest="other", reads=(old.reads[0], (replace(read, table=table), *old.reads[1][1:])))
    (change,) = changes(old, new)
    assert (change.rule, change.subject.side, change.workers) == ("SPANS_CUT", "decode", "1")
    assert "decode 2" in str(change.after)


def test_workers_that_change_alike_are_one_change() -> None:
    found = of("PAGE_BYTES", changes(plan("tp=4", "tp=8"), plan("tp=4", "tp=8,block=32")))
    assert [(change.before, change.after, change.workers, change.share) for change in found] == [(8192, 16384, "", 1.0)]


def test_costs_are_of_all_workers_together() -> None:
    (cost,) = of("REQUESTS", changes(plan("tp=4", "tp=2"), plan("tp=4", "tp=2,order=nhd")))
    assert (cost.before, cost.after, cost.subject.word) == (2 * 4096, 2 * 131_072, "per 1,024 tokens")


def test_groups_of_one_cache_are_told_once() -> None:
    model = "nemotron-3-nano-30b"
    found = changes(plan("tp=4", "tp=2", model), plan("tp=4", "tp=2,kernel_block=16", model))
    assert {change.subject.name for change in found if change.rule in ("PAGE_BYTES", "BLOCK_TOKENS")} <= {
        "attention",
        "mamba",
    }


def test_every_decode_worker_is_counted_once_per_prefill_worker() -> None:
    found = plan("tp=16", "tp=4")
    assert sum(expected(found)) == sum(
        len({r.worker for r in reads} | set(told)) for reads, told in zip(found.reads, found.notify, strict=True)
    )
    assert min(expected(found)) == 1


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0-2"), ([0, 1, 5, 7, 8], "0-1, 5, 7-8")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
