"""Reads and writes from one plan, whole, in slices and in chunks: the same bytes arrive, and the same are posted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from tests.end_to_end.memory import EMPTY, refill, regions_of, stamp, wrong
from tests.random_sides.draw import Case, case, twins
from tests.random_sides.sides import cache, side, tensor
from tests.requests import ask, block_table
from tests.runtime.helpers.drawn import fed, whole
from tests.runtime.helpers.ends import Ends, ends
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask as request_of
from tests.runtime.helpers.requests import check, filled
from tests.runtime.helpers.worlds import World
from tests.runtime.helpers.worlds import world as made_world
from tests.runtime.transfer.test_chunks import shared

from kvplan.compiler.api import compile_bound
from kvplan.plan.request import Request
from kvplan.runtime import errors
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import demand


def at_once(world: Ends, drawn: Case, push: bool, most: int) -> None:
    """The request, in slices of at most `most` bytes."""
    for theirs, worker, runs, _ in whole(world.plan, drawn):
        link = world.link(theirs, worker, push)
        for piece, _ in slices.cut(link, runs, most):
            world.move(link, piece)


def chunk_by_chunk(world: Ends, drawn: Case, push: bool, split: bool) -> None:
    """Each chunk over links of its own layers."""
    for theirs, worker, runs, layers in fed(world.plan, drawn, split):
        link = world.link(theirs, worker, push, layers)
        world.move(link, runs)
        link.release()


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 3000), st.booleans())
@example(497, False, 1, False)  # workers that hold nothing of a cache whose pages are padded
def test_every_byte_arrives_either_way(seed: int, split: bool, most: int, alike: bool) -> None:
    drawn = twins(case(seed)) if alike else case(seed)
    note("\n".join(drawn.texts))
    sides = drawn.prefill, drawn.decode
    made = compile_bound(*sides, {"elect": drawn.elect}).plan
    world, regions = ends(made, sides, drawn.request), regions_of(sides, [drawn.request])
    for memory in world.prefill:
        stamp(memory, regions, drawn.request.prefill)
    for push in (False, True):
        for way in (
            lambda push: at_once(world, drawn, push, most),
            lambda push: chunk_by_chunk(world, drawn, push, split),
        ):
            for memory in world.decode:
                refill(memory, EMPTY)
            try:
                way(push)
            except errors.BadRequestError as error:
                if split and shared(error):
                    continue
                raise
            for memory in world.decode:
                assert wrong(memory, regions, drawn.request, made.skipped) == []


@pytest.mark.parametrize(("order", "part", "whole_page"), [
    ("block { head { token { k[dim] } } }", 3, 1),
    ("block { token { head { k[dim] } } }", 1, 1),
])  # fmt: skip
@pytest.mark.parametrize("push", [False, True])
def test_the_descriptors_of_a_last_page(order: str, part: int, whole_page: int, push: bool) -> None:
    """If heads come first, a part of a page takes one descriptor for each head, and a whole page takes one."""
    k = tensor("k", 1, None, token=0, head=3, dim=2)
    both = (side([cache(f"layer {{ {order} }}", k, name="a", layers=(3, 4), kernel=4)]),) * 2
    tables = {"a": block_table(0, [5, 2])}, {"a": block_table(0, [1, 4])}
    drawn = Case(*both, ask((0, 7), *tables), (), 0)
    assert descriptors(drawn, push) == 2 * (1 + part)
    whole = replace(drawn, request=replace(drawn.request, whole_last_page=True))
    assert descriptors(whole, push) == 2 * (1 + whole_page)


def descriptors(drawn: Case, push: bool) -> int:
    sides = drawn.prefill, drawn.decode
    world = ends(compile_bound(*sides).plan, sides, drawn.request)
    moves = [(world.link(theirs, worker, push), runs) for theirs, worker, runs, _ in whole(world.plan, drawn)]
    return sum(world.move(link, runs).descriptors for link, runs in moves)


def test_layers_of_one_page_are_fed_together_and_nothing_stays_prepared() -> None:
    k = tensor("k", 1, None, token=0, dim=2)
    stored = cache("block { token { layer { k[dim] } } }", k, name="a", layers=(3, 4, 5), kernel=4)
    alone = cache("layer { block { token { k[dim] } } }", k, name="a", layers=(3, 4, 5), kernel=4)
    drawn = case(1)
    for theirs, ours, refused in ((stored, stored, True), (stored, alone, False), (alone, stored, False)):
        sides = side([theirs]), side([ours])
        world = ends(compile_bound(*sides).plan, sides, drawn.request)
        for push in (False, True):
            assert world.link(0, 0, push, frozenset({3, 4, 5})).entries
            assert world.link(0, 0, push, frozenset({9})).entries == ()
            if refused:
                with pytest.raises(errors.BadRequestError, match="layers 3-5 of 'a' share a page: feed them together"):
                    world.link(0, 0, push, frozenset({4}))
            else:
                (entry,) = world.link(0, 0, push, frozenset({4})).entries
                assert len(entry.page) + sum(len(one.table) for one in entry.token) > 0


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_says_so_in_either_mode(mode: str, streamed: bool) -> None:
    """Prefill has 12 tokens in three pages, decode asks for 10: with the flag the other two are copied, too."""
    for may_be, end in ((False, 10), (True, 12)):
        made = made_world(Shape(1), Shape(1), Model(state=False), mode=mode)
        try:
            held = request_of(made, (0, 12))
            filled(made, held)
            ask_for(made, replace(held, tokens=(0, 10), whole_last_page=may_be), streamed)
            check(made, 0, replace(held, tokens=(0, end)), held=12)
        finally:
            made.close()


def ask_for(made: World, asked: Request, streamed: bool) -> None:
    (source,), (reader,) = made.prefill, made.decode
    if not streamed:
        source.hold("r", asked.prefill)
        reader.submit(asked, 20).wait()
        return
    source.open("r", (0, 12))
    transfer = reader.open(replace(asked, prefill={}), 20)
    source.offer("r", (0, 8), asked.prefill)
    source.offer("r", (8, 12), asked.prefill, last=True)
    transfer.wait()


def test_no_page_is_whole_where_prefill_may_have_had_what_decode_lacks() -> None:
    """A draft that decode does not have, in blocks of the same pool: its bytes may be no number in another type."""
    k = tensor("k", 1, None, token=0, head=3, dim=2)
    both = (side([cache("layer { block { head { token { k[dim] } } } }", k, name="a", layers=(3, 4), kernel=4)]),) * 2
    plan, tables = compile_bound(*both).plan, ({"a": block_table(0, [5, 2])}, {"a": block_table(0, [1, 4])})
    draft = replace(plan.prefill.groups[0], name="draft", table="")
    shared = replace(plan, prefill=replace(plan.prefill, groups=(*plan.prefill.groups, draft)))
    asked = replace(ask((0, 7), *tables), whole_last_page=True)
    found = [[runs.count.tolist() for runs in demand(one, 0, asked).runs.values()] for one in (plan, shared)]
    assert found == [[[4, 4]], [[4, 3]]]
