"""Differences by meaning: nothing for the same plan, and a line for each thing that changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.explain.diff import Change, diff, expected, peers
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.types import Nest, Plan, Table


def plan(prefill: str, decode: str, model: str = "llama-3.1-8b", **options: str) -> Plan:
    return compile_pair(load(), model, prefill, decode, options).plan


def about(found: list[Change]) -> set[str]:
    return {change.about for change in found}


def test_the_same_plan_does_not_differ() -> None:
    assert diff(plan("tp=4", "tp=2"), plan("tp=4", "tp=2,block=16,order=hnd")) == []


def test_titles_are_not_meaning() -> None:
    old = plan("tp=4", "tp=2")
    assert diff(old, replace(old, title="another")) == []


@pytest.mark.parametrize(
    ("new", "changed"),
    [
        ("tp=2,order=nhd", {"model", "pages", "spans", "cost", "peers"}),
        ("tp=2,block=32", {"model", "groups", "pages", "spans", "cost", "peers"}),
        ("tp=4", {"model", "pages", "reads", "spans", "contract", "cost", "peers"}),
    ],
)
def test_what_changes_is_named(new: str, changed: set[str]) -> None:
    assert about(diff(plan("tp=4", "tp=2"), plan("tp=4", new))) == changed


def test_an_option_can_change_the_contract_alone() -> None:
    found = diff(plan("tp=16", "tp=8"), plan("tp=16", "tp=8", elect="spread"))
    assert {"reads", "contract"} <= about(found)
    assert "pages" not in about(found)
    assert "same sides" in str(found[-1].after)


def test_a_single_moved_span_is_seen() -> None:
    old = plan("tp=4", "tp=2")
    read = old.reads[1][0]
    nest = read.table.page[0]
    moved = replace(
        read, table=Table((Nest(nest.tensors, nest.prefill, (0, 2), nest.bytes, nest.loops),), read.table.token)
    )
    new = replace(old, digest="other", reads=(old.reads[0], (moved, *old.reads[1][1:])))
    (change, last) = diff(old, new)
    assert change.about == "spans"
    assert change.where == "decode worker 1 · from prefill worker 2 · attention · a page"
    assert last.about == "peers"


def test_equal_changes_are_said_once() -> None:
    found = diff(plan("tp=4", "tp=8"), plan("tp=4", "tp=8,block=32"))
    pages = [change for change in found if change.where.endswith("attention page")]
    assert [change.where for change in pages] == ["decode workers 0-7 · attention page"]


def test_peers_talk_only_with_equal_digests() -> None:
    old, new = plan("tp=4", "tp=2"), plan("tp=4", "tp=2,order=nhd")
    assert peers(old, old).after == "can talk to each other"
    assert "decode side changed" in str(peers(old, new).after)


def test_costs_before_and_after() -> None:
    found = {change.where: change for change in diff(plan("tp=4", "tp=2"), plan("tp=4", "tp=2,order=nhd"))}
    cost = found["decode workers 0-1 · attention requests per 1024 tokens"]
    assert (cost.before, cost.after) == ("4,096", "131,072")


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
