"""Changes between plans that the compiler made: nothing for the same plan, else what a reviewer has to know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.explain.contract import expected
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.blocks import Blocks
from kvplan.plan.expand import BYTES
from kvplan.plan.match import rule_of
from kvplan.plan.spans import copies
from kvplan.plan.types import Needs, Nest, Plan, Table
from kvplan.review.changes import Change, changes
from kvplan.review.facts import Subject, facts
from kvplan.review.fold import percent


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
        ("tp=2,order=nhd", {"OPTION", "AXIS_ORDER", "STEPS", "SPANS", "DESCRIPTORS"}),
        (
            "tp=2,block=32",
            {"OPTION", "BLOCK_TOKENS", "PAGE_BYTES", "BLOCK_STRIDE", "STEPS", "PAGE_COPIES", "SPANS", "DESCRIPTORS"},
        ),
        (
            "tp=4",
            {
                "OPTION",
                "WORKERS",
                "HOLDS",
                "PAGE_BYTES",
                "TOKEN_BYTES",
                "BLOCK_STRIDE",
                "READERS",
                "READS",
                "SPANS",
                "DESCRIPTORS",
                "MOVED_BYTES",
            },
        ),
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
    nest = read.table.per_page[0]
    table = Table((Nest(nest.tensors, nest.prefill, (0, 2), nest.bytes, nest.loops),), read.table.per_token)
    new = replace(old, digest="other", reads=(old.reads[0], (replace(read, table=table), *old.reads[1][1:])))
    (change,) = changes(old, new)
    assert (change.rule, change.subject.side, change.workers) == ("SPANS_CUT", "decode", "1")
    assert "2 of decode" in str(change.after)


@pytest.mark.parametrize(
    ("model", "prefill", "decode"),
    [
        ("llama-3.1-8b", "tp=4", "tp=2,block=32"),
        ("llama-3.1-8b", "tp=4", "tp=2,order=nhd"),
        ("llama-3.1-8b", "engine=custom,tp=6", "engine=custom,tp=4,order=shuffled,copies=round_robin"),
        ("deepseek-v3", "tp=2", "tp=1,block=128"),
    ],
)
def test_spans_of_a_run_are_those_that_it_copies(model: str, prefill: str, decode: str) -> None:
    """Their number and bytes, not those of one of its tokens."""
    found = plan(prefill, decode, model)
    pair, read = found.group_pairs[0], found.reads[0][0]
    blocks = Blocks(0, np.arange(1))
    size = rule_of(found, pair).steps[0] * pair.rows
    run = rule_of(found, pair).runs((0, size), blocks, blocks)
    # Not whole pages, which go by the other table.
    by_token = replace(read, table=replace(read.table, per_page=()))
    sizes = copies(found, 0, by_token, run)[:, BYTES]
    said = next(
        str(fact.value).partition(", first at")[0]
        for fact in facts(found, {})
        if fact.subject.rule == "SPANS" and fact.subject.word == "by runs of tokens"
    )
    lengths = " to ".join(f"{size:,}" for size in sorted({int(sizes.min()), int(sizes.max())}))
    assert said == f"{len(sizes):,} spans of {lengths} B in a run of {size} tokens"


def test_workers_that_change_alike_are_one_change() -> None:
    found = of("PAGE_BYTES", changes(plan("tp=4", "tp=8"), plan("tp=4", "tp=8,block=32")))
    assert [(change.before, change.after, change.workers, change.share) for change in found] == [(8192, 16384, "", 1.0)]


@pytest.mark.parametrize("turned", [False, True])
def test_what_new_and_removed_workers_read_and_hold_is_told_of_each(turned: bool) -> None:
    one, two = plan("tp=2", "tp=1"), plan("tp=2", "tp=2")
    found = changes(two, one) if turned else changes(one, two)
    told = {
        rule: [(*(change.before, change.after)[:: -1 if turned else 1], change.workers) for change in of(rule, found)]
        for rule in ("READERS", "HOLDS")
    }
    assert told == {
        "READERS": [("0-1", "0", "0"), (None, "1", "1")],
        "HOLDS": [("0-7", "0-3", "0"), (None, "4-7", "1")],
    }


def test_costs_are_of_the_busiest_worker() -> None:
    (cost,) = of("DESCRIPTORS", changes(plan("tp=4", "tp=2"), plan("tp=4", "tp=2,order=nhd")))
    assert (cost.before, cost.after, cost.subject.word) == (4096, 131_072, "per decode worker and 1,024 tokens")
    two = plan("tp=4", "tp=2")
    less = replace(two, digest="other", reads=(two.reads[0], two.reads[1][:1]))
    assert not {"DESCRIPTORS", "MOVED_BYTES"} & rules(changes(two, less))


@pytest.mark.parametrize(("workers", "grows"), [(1, True), (2, False), (4, False), (16, False)])
def test_fewer_decode_workers_cost_more_and_more_do_not(workers: int, grows: bool) -> None:
    """The same bytes take twice as long if half as many workers move them."""
    found = changes(plan("tp=4", "tp=2,order=nhd"), plan("tp=4", f"tp={workers},order=nhd"))
    costs = of("DESCRIPTORS", found) + of("MOVED_BYTES", found)
    assert any(cost.share and cost.share > 0 for cost in costs) == grows


def test_a_prefill_worker_that_sends_each_head_twice_costs_more() -> None:
    """More decode workers than heads: each reads less than before, but prefill sends all of it twice."""
    (cost,) = of("MOVED_BYTES", changes(plan("tp=1", "tp=8"), plan("tp=1", "tp=16")))
    assert (cost.before, cost.after) == (2 * 4 * 128 * 2 * 32 * 1024 * 2, 2 * 4 * 128 * 2 * 32 * 1024 * 4)


def cost_of(before: Needs, after: Needs) -> tuple[str, float, float]:
    """The word of MOVED_BYTES if the needs of a pair change, and the tokens that move before and after."""
    of_one_token = 2 * 4 * 128 * 2 * 32
    old = plan("tp=4", "tp=2")
    some = [
        replace(old, digest=str(needs), group_pairs=(replace(old.group_pairs[0], needs=needs),))
        for needs in (before, after)
    ]
    (cost,) = of("MOVED_BYTES", changes(*some))
    assert isinstance(cost.before, int)
    assert isinstance(cost.after, int)
    return cost.subject.word, cost.before / of_one_token, cost.after / of_one_token


@pytest.mark.parametrize(
    ("before", "after", "tokens", "moved"),
    [
        (Needs(keep=127), Needs(keep=255), 1024, (127, 255)),
        (Needs(keep=1023), Needs(keep=2047), 4096, (1023, 2047)),
        (Needs(keep=4095), Needs(keep=2047), 8192, (4095, 2047)),
        (Needs(), Needs(keep=1023), 2048, (2048, 1023)),
        (Needs(keep=1023), Needs(keep=1023, sink=64), 3072, (1023, 1087)),
    ],
)
def test_a_cost_is_of_more_tokens_than_a_window_has(
    before: Needs, after: Needs, tokens: int, moved: tuple[int, int]
) -> None:
    """At 1,024 tokens a window of 2,048 moves no more than one of 4,096."""
    assert cost_of(before, after) == (f"per worker and {tokens:,} tokens", *moved)


@pytest.mark.parametrize(
    ("before", "after", "tokens", "moved"),
    [
        (Needs(chunk=7168), Needs(chunk=8192), 16_384, (7167, 8191)),
        (Needs(chunk=8192), Needs(chunk=2048), 16_384, (8191, 2047)),
        (Needs(chunk=8192), Needs(chunk=16_384), 32_768, (8191, 16_383)),
        (Needs(chunk=64), Needs(), 1024, (63, 1024)),
        (Needs(chunk=64), Needs(keep=1023), 2048, (63, 1023)),
        (Needs(keep=100, chunk=64), Needs(keep=30, chunk=64), 1024, (63, 30)),
    ],
)
def test_a_cost_with_a_chunk_is_the_worst_case_of_each_plan(
    before: Needs, after: Needs, tokens: int, moved: tuple[int, int]
) -> None:
    """One length for both would show a larger chunk as cheaper, if it lay nearer to a chunk's begin in that plan."""
    assert cost_of(before, after) == (f"per worker and {tokens:,} tokens, or more up to the end of a chunk", *moved)


def test_groups_of_one_cache_are_told_once() -> None:
    model = "nemotron-3-nano-30b"
    found = changes(plan("tp=4", "tp=2", model), plan("tp=4", "tp=2,kernel_block=16", model))
    assert {change.subject.name for change in found if change.rule in ("PAGE_BYTES", "BLOCK_TOKENS")} <= {
        "attention",
        "mamba",
    }


def regrouped(old: Plan, tokens: int = 16) -> Plan:
    """The same with another name of the group of prefill."""
    group = replace(old.prefill.groups[0], name="all", tokens=tokens)
    workers = tuple(
        replace(worker, planes=tuple(replace(entry, group="all") for entry in worker.planes))
        for worker in old.prefill.workers
    )
    side = replace(old.prefill, digest="other", groups=(group,), workers=workers)
    return replace(old, digest="other", prefill=side, group_pairs=(replace(old.group_pairs[0], prefill="all"),))


def test_other_blocks_are_told_where_groups_have_other_names_too() -> None:
    old = plan("tp=4", "tp=2")
    (tokens,) = of("BLOCK_TOKENS", changes(old, regrouped(old, tokens=32)))
    assert (tokens.subject.side, tokens.subject.name, tokens.before, tokens.after) == ("prefill", "attention", 16, 32)


def test_groups_of_other_names_are_no_other_blocks() -> None:
    old = plan("tp=4", "tp=2")
    found = rules(changes(old, regrouped(old)))
    assert "GROUP" in found
    assert not {"BLOCK_TOKENS", "KERNEL_BLOCKS", "TURNS", "RING", "NEEDS"} & found


def test_a_page_that_changes_on_one_side_is_told_where_its_cache_is_new_on_the_other() -> None:
    old = plan("tp=4", "tp=2")
    without = tuple(replace(worker, planes=()) for worker in old.prefill.workers)
    before = replace(old, prefill=replace(old.prefill, digest="before", workers=without), reads=((), ()))
    larger = tuple(
        replace(worker, planes=tuple(replace(entry, page_bytes=2 * entry.page_bytes) for entry in worker.planes))
        for worker in old.decode.workers
    )
    new = replace(old, digest="other", decode=replace(old.decode, digest="other", workers=larger))
    found = changes(before, new)
    told = [
        (change.subject.side, change.subject.word) for change in (*of("PAGE_BYTES", found), *of("TOKEN_BYTES", found))
    ]
    assert told == [("decode", "page"), ("decode", "per token and layer on one worker")]


def test_what_prefill_keeps_beyond_what_is_read_is_told() -> None:
    old = plan("tp=4", "tp=2")
    needs = (("attention", Needs(keep=100)),)
    new = replace(old, digest="other", prefill=replace(old.prefill, digest="other", needs=needs))
    (kept,) = of("NEEDS", changes(old, new))
    assert (kept.subject.side, kept.before, kept.after) == ("prefill", "what is read", "the last 100 tokens")


def test_engines_that_refuse_each_other_have_a_change_of_bytes() -> None:
    old = plan("tp=4", "tp=2")
    options = (("elect", "spread"), ("strategy", "direct"))
    new = replace(old, digest="other", model_digest="another", options=options)
    (untold,) = of("DIGEST", changes(old, new))
    assert (untold.subject.name, untold.after) == ("digest of what is stored", "another")
    assert not of("DIGEST", changes(old, replace(new, model_digest=old.model_digest)))


def test_a_tensor_keeps_its_name_in_planes_of_its_own() -> None:
    found = changes(plan("tp=4", "tp=2"), plan("tp=4", "tp=2,engine=custom,order=planes"))
    assert {change.subject.part for change in of("PLACE", found)} <= {"k", "v"}
    assert all(change.before is not None and change.after is not None for change in of("PLACE", found))


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


def test_a_page_that_only_one_side_has_in_parts_is_one_change() -> None:
    """Else a page and its tokens would seem to be removed."""
    found = changes(plan("tp=2", "tp=2"), plan("tp=2", "engine=sglang,tp=2"))
    (page,), (token,) = of("PAGE_BYTES", found), of("TOKEN_BYTES", found)
    assert (page.before, page.after) == ("32,768 B page", "1,024 B page for k and for v")
    assert (token.before, token.after) == (
        "2,048 B per token and layer on one worker",
        "1,024 B per token and layer on one worker for k and for v",
    )
    (token,) = of("TOKEN_BYTES", changes(plan("tp=2", "tp=2"), plan("tp=2", "tp=2,order=BLHNC")))
    assert (token.before, token.after) == (
        "2,048 B per token and layer on one worker",
        "65,536 B per token on one worker",
    )


def test_how_pages_are_copied_is_of_a_cache() -> None:
    """Its groups have other names on another engine."""
    found = changes(plan("tp=2", "tp=1", "gemma-3-27b"), plan("tp=2", "engine=sglang,tp=1", "gemma-3-27b"))
    assert {(one.subject.name, one.before) for one in of("PAGE_COPIES", found)} == {
        ("full", "page by page"),
        ("sliding", "page by page"),
    }


def test_turns_are_told_once() -> None:
    found = changes(plan("tp=2", "tp=4"), plan("tp=2", "tp=16,dcp=2"))
    assert [one.subject.word for one in of("TURNS", found)] == [""]


def test_a_place_does_not_grow() -> None:
    places = Change(Subject("PLACE"), 256, 0), Change(Subject("PAGE_BYTES"), 256, 0)
    assert [one.share for one in places] == [None, -1.0]


@pytest.mark.parametrize(("share", "said"), [(-0.5, "−50 %"), (0.005, "+0.5 %"), (1.0, "× 2"), (6144.0, "× 6,145")])
def test_growth_is_read_at_once(share: float, said: str) -> None:
    assert percent(share) == said
