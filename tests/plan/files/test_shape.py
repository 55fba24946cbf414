"""A plan's values are of the types that its fields say: nothing that one reader sees and another one does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from tests.random_sides.sides import cache, side, tensor

from kvplan.compiler.api import compile_bound
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.prove.prove import prove
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.shape import check_shape
from kvplan.plan.types import Nest, Plan

# Values of other types than the fields are what this is about.
replace: Any = dataclasses.replace
TEXT = "layer { block { head { token { k[dim] } } } }"


def plan() -> Plan:
    c = cache(TEXT, tensor("k", 2, {"head": "tp"}, head=2, token=0, dim=4), layers=(0, 1), kernel=4)
    return compile_bound(side([c], tp=2), side([c])).plan


def with_nest(change: Callable[[Nest], Any]) -> Any:
    made = plan()
    read = made.reads[0][0]
    nests = tuple(change(nest) for nest in read.table.per_token)
    changed = replace(read, table=replace(read.table, per_token=nests))
    return replace(made, reads=((changed, *made.reads[0][1:]),))


WRONG: dict[str, Callable[[Nest], Any]] = {
    "a place of three": lambda nest: replace(nest, prefill=(0, 0, 0)),
    "a place of one": lambda nest: replace(nest, decode=(0,)),
    "a token step of three": lambda nest: replace(nest, token_step=(8, 8, 7)),
    "hops of two": lambda nest: replace(nest, hops=((2, 4),)),
    "a text": lambda nest: replace(nest, bytes="8"),
    "a truth": lambda nest: replace(nest, bytes=True),
    "a loop's place": lambda nest: replace(nest, loops=(replace(nest.loops[0], decode=(1, 0, 5)), *nest.loops[1:])),
    "nothing": lambda nest: replace(nest, prefill=None),
}


def test_a_plan_has_its_shape() -> None:
    check_shape(plan())


@pytest.mark.parametrize("name", WRONG)
def test_another_shape_is_refused(name: str) -> None:
    with pytest.raises(PlanFormatError, match="a plan has"):
        check_shape(with_nest(WRONG[name]))


@pytest.mark.parametrize(
    "options",
    [
        (("elect", "one"), ("strategy", "staged")),
        (("elect", "one"),),
        (("elect", "one"), ("strategy", "direct"), ("x", "y")),
    ],
)
def test_options_that_nobody_has_are_refused(options: tuple[tuple[str, str], ...]) -> None:
    c = cache(TEXT, tensor("k", 2, head=2, token=0, dim=4), layers=(0, 1), kernel=4)
    made = compile_bound(side([c]), side([c])).plan
    with pytest.raises(ProofFailed, match="options"):
        prove(replace(made, options=options), placed(side([c])), placed(side([c])))


def test_what_is_spread_does_not_say_that_it_is_not() -> None:
    c = cache(TEXT, tensor("k", 2, head=2, token=0, dim=4), layers=(0, 1), kernel=4)
    both = side([c], tp=2), side([c])
    made = compile_bound(*both, {"elect": "spread"}).plan
    with pytest.raises(ProofFailed, match="one holder"):
        prove(replace(made, options=(("elect", "one"), ("strategy", "direct"))), *map(placed, both))


def test_the_sentence_leaves_out_what_is_skipped() -> None:
    c = cache(TEXT, tensor("k", 2, head=2, token=0, dim=4), layers=(0, 1), kernel=4)
    more = replace(cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="draft"), optional=True)
    made = compile_bound(side([c]), side([c, more]))
    assert "draft" not in made.proof.sentence
    assert "Not moved: draft, because one side lacks it." in made.text


def test_tiles_that_never_begin_together_are_loops() -> None:
    """Shares that begin in the middle of the other side's tiles: thousands of tiles, a handful of nests."""
    axes = {"ch": 4096, "tap": 2}
    x = tensor("x", 2, {"ch": "tp"}, **axes)
    one = cache("layer { block { ch/8 { tap { x[ch%8] } } } }", replace(x, shares=(("ch", (8, 4088)),)))
    other = cache("layer { block { ch/16 { tap { x[ch%16] } } } }", x)
    made = compile_bound(side([one], tp=2), side([other])).plan
    assert max(len(read.table.per_page) for read in made.reads[0]) < 8


def test_readers_that_read_alike_are_written_once() -> None:
    """Every worker has a turn of its own on both sides, so that each decode worker reads all prefill workers."""
    c = cache("layer { block { token { k[dim] } } }", tensor("k", 2, token=0, dim=4), kernel=8)
    made = compile_bound(side([c], tp=8, dcp=8, chunk=8), side([c], tp=6, dcp=6, chunk=3))
    assert len(set(made.plan.reads)) == 1
    assert made.text.count("    READS_0_TO_5,  # decode worker") == 6
    assert made.text.count("Read(worker=7,") == 1
