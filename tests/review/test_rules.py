"""Every rule has a plan of before and one of now that break it, and these break no other one."""

from __future__ import annotations

import re

import pytest
from tests.review.cases import WITH, cases

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import BadInput
from kvplan.dsl.library import load
from kvplan.review.changes import changes
from kvplan.review.judge import Policy, judged
from kvplan.review.review import review
from kvplan.review.rules import MEANINGS, RULES, TABLE, Category, RolloutVerdict, chosen

CASES = cases()
COSTS = {rule.id for rule in TABLE if rule.category is Category.COST}
WHAT_THEY_MEAN = {
    Category.TEXT: {RolloutVerdict.TEXT},
    Category.PLAN: {RolloutVerdict.RELOAD},
    Category.LAYOUT: {RolloutVerdict.TOGETHER, RolloutVerdict.ONE_SIDE, RolloutVerdict.RELOAD},
    Category.PAIR: {RolloutVerdict.RELOAD, RolloutVerdict.REMOVED},
}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("name", CASES)
def test_a_case_breaks_its_rule_and_no_other(name: str) -> None:
    (pair,) = review(*CASES[name]).pairs
    found = set(pair.rules)
    assert name in found
    assert found - (COSTS - {name}) - {name} == WITH.get(name, set())


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_case_and_its_category_mean_the_same(name: str) -> None:
    (pair,) = review(*CASES[name]).pairs
    if name not in COSTS:
        asks_more = {RolloutVerdict.TOGETHER} if name in ("COMPILE_OPTION", "FORMAT") else set()
        assert pair.verdict in (asks_more or WHAT_THEY_MEAN[RULES[name].category])


@pytest.mark.parametrize("name", CASES)
def test_what_engines_notice_fails_unless_somebody_accepts_it(name: str) -> None:
    """A verdict that refuses old engines must not pass because a list of categories forgot one."""
    found = review(*CASES[name])
    (pair,) = found.pairs
    harmless = pair.verdict is RolloutVerdict.TEXT or name == "PAIR_NEW"
    assert bool(judged(found, Policy()).rules) != harmless


@pytest.mark.parametrize("name", CASES)
def test_nothing_changes_from_a_plan_to_itself(name: str) -> None:
    before, after = CASES[name]
    for files in (before, after):
        assert review(files, files).pairs == ()


def test_ids_are_words_and_sentences_are_sentences() -> None:
    assert len(RULES) == len(TABLE)
    for one in TABLE:
        assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", one.id)
        assert one.sentence.endswith(".")
        assert one.id not in MEANINGS


def test_words_stand_for_rules() -> None:
    assert chosen("page_bytes") == ("PAGE_BYTES",)
    assert set(chosen("Cost")) == COSTS
    with pytest.raises(BadInput, match="did you mean 'BLOCK_TOKENS'"):
        chosen("BLOCK_TOKEN")
    with pytest.raises(BadInput, match="S027"):
        chosen("")


def test_a_stage_that_goes_is_more_descriptors() -> None:
    """The change counts the descriptors of a worker as in the headers of both plans."""
    ways = ("unpack", "direct")
    before, after = (compile_pair(load(), "llama-3.1-8b", "tp=4", "tp=2,order=nhd", {"strategy": way}) for way in ways)
    found = {change.subject.rule: change for change in changes(before.plan, after.plan)}
    (unpacked,), (direct,) = before.facts.moves, after.facts.moves
    told = found["DESCRIPTORS"].before, found["DESCRIPTORS"].after
    assert told == (unpacked.staged[0].descriptors, direct.descriptors)
    whole = before.plan.prefill.workers[0].planes[0].page_bytes
    staged = f"through a stage, {whole:,} B of each page in 32 KV cache tensors"
    assert (found["STAGES"].before, found["STAGES"].after) == (staged, "no stage")
