"""Caches with a length of their own, and caches of which only some tokens are needed, through the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache as once
from typing import Any

import pytest
from tests.end_to_end.memory import EMPTY, PADDED, refill, stamp, wrong
from tests.end_to_end.worlds import World, move, runtime_request, world
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table, plain_ids
from tests.runtime.helpers.requests import looked_at

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.plan.block_tables import Slot
from kvplan.plan.request import Request
from kvplan.plan.types import Needs, Plan
from kvplan.runtime import Sample, errors

TEXT = "layer { block { token { head { k[dim] } } } }"
NEEDS = {
    "window": Needs(keep=6),
    "sinks": Needs(keep=6, sink=3),
    "chunk": Needs(chunk=8),
    "chunk and sinks": Needs(chunk=8, sink=3),
}
# Tokens 0..20 in blocks of 4 on prefill and of 6 on decode; 3..14 of the other length; a state.
CONTEXT, FRAMES = block_table(0, (7, 3, 4, 9, 0, 2)), block_table(0, (1, 5, 6, 8))
REQUEST = ask(
    (0, 21),
    {"a": CONTEXT, "x": FRAMES, "s": Slot(11, 21)},
    {"a": block_table(0, (6, 0, 3, 4)), "x": block_table(0, (1, 2, 7)), "s": Slot(5, 21)},
    {"frames": (3, 15)},
)


@once
def sides(needs: Needs) -> tuple[BoundSide, BoundSide]:
    """One prefill worker and two decode workers with a head each."""
    return _side(4, 1, needs), _side(6, 2, needs)


def _side(kernel: int, tp: int, needs: Needs) -> BoundSide:
    k = tensor("k", 1, {"head": "tp"}, head=2, token=0, dim=2)
    a = replace(cache(TEXT, k, name="a", layers=(0, 1), kernel=kernel), needs=needs)
    x = replace(cache(TEXT, k, name="x", layers=(1,), kernel=kernel), length="frames")
    s = cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="s")
    tables = group((a, (0, 1))), replace(group((x, (1,)), arena=1), length="frames"), group((s, (0,)), arena=2)
    return side([a, x, s], tables, tp=tp)


@once
def plan(needs: Needs) -> Plan:
    return compile_bound(*sides(needs)).plan


def made(needs: Needs) -> Any:
    return world(plan(needs), sides(needs), [REQUEST])


@pytest.fixture
def every() -> Iterator[World]:
    with made(Needs()) as found:
        yield found


@pytest.mark.parametrize(
    ("tokens", "frames"),
    [((0, 21), (3, 15)), ((21, 21), (3, 15)), ((0, 21), (15, 15)), ((21, 21), (0, 0)), ((5, 21), (14, 15))],
    ids=["both", "whole hit of the context", "whole hit of the other", "whole hit of both", "prefix hits"],
)
def test_ranges_count_by_themselves(every: World, tokens: tuple[int, int], frames: tuple[int, int]) -> None:
    request = replace(REQUEST, tokens=tokens, lengths={"frames": frames})
    move(every, request, "r")
    assert every.finished() == {("r",)}


# Chunks of a request of which decode has the context: tokens, groups that are named, layers, whether it is the last.
FED: dict[str, list[tuple[tuple[int, int], str, list[int] | None, bool]]] = {
    "layer by layer": [((0, 8), "a", None, False), ((8, 21), "axs", [0], False), ((8, 21), "axs", [1], True)],
    "an empty last chunk": [((0, 21), "axs", None, False), ((21, 21), "", None, True)],
    "the end comes first": [((8, 21), "axs", None, False), ((0, 8), "a", None, True)],
    "a layer, and the others with the last": [((0, 21), "axs", [0], False), ((21, 21), "x", None, True)],
}


def fed(one: World, request: Request, chunks: list[tuple[tuple[int, int], str, list[int] | None, bool]]) -> None:
    """A request that is opened by prefill, fed, and read by decode, which knows no block of prefill's."""
    for worker, memory in one.prefill:
        stamp(memory, one.regions, request.prefill)
        worker.open("r", (0, 21))
        for tokens, names, layers, last in chunks:
            tables = {name: request.prefill[name] for name in names}
            worker.offer("r", tokens, tables, layers=layers, last=last)
    for reader, memory in one.decode:
        refill(memory, EMPTY)
        reader.open(replace(runtime_request(request, "r"), prefill={}), 20).wait()
        assert wrong(memory, one.regions, request) == []


@pytest.mark.parametrize("chunks", FED.values(), ids=FED)
def test_another_length_comes_in_chunks_where_decode_has_the_context(every: World, chunks: Any) -> None:
    fed(every, replace(REQUEST, tokens=(21, 21)), chunks)


def test_the_chunk_that_ends_where_the_request_does_has_to_come(every: World) -> None:
    """It brings what has no tokens to cut, whatever else decode has already."""
    with pytest.raises(errors.BadRequestError, match="gaps"):
        fed(every, replace(REQUEST, tokens=(21, 21)), [((0, 8), "axs", None, True)])


@pytest.mark.parametrize("sample", [None, Sample()])
def test_a_group_of_which_nothing_is_needed_need_not_be_named(sample: Sample | None) -> None:
    """After 21 tokens a new chunk of 7 begins, which needs none of them."""
    theirs = {name: table for name, table in REQUEST.prefill.items() if name != "a"}
    with made(Needs(chunk=7)) as one:
        for worker, memory in one.prefill:
            stamp(memory, one.regions, theirs)
            worker.open("r", (0, 21))
            worker.offer("r", (0, 21), theirs, last=True)
        for reader, memory in one.decode:
            refill(memory, EMPTY)
            asked = replace(runtime_request(REQUEST, "r"), prefill={})
            reader.open(asked, 20, checksum=sample).wait()
            assert not any((memory.planes[name] < EMPTY).any() for name in ("a.0", "a.1"))
            assert (memory.planes["x.1"] < EMPTY).any()


BAD: dict[str, tuple[Any, str]] = {
    "missing": ({}, "frames"),
    "unknown": ({"frames": (3, 15), "seconds": (0, 3)}, "seconds"),
    "misspelt": ({"frame": (3, 15)}, "frame"),
    "the context's": ({"frames": (3, 15), "context": (0, 21)}, "context"),
    "a list": ([("frames", (3, 15))], "mapping by name, not list"),
    "none": (None, "mapping by name, not NoneType"),
    "no range": ({"frames": 15}, "two whole numbers"),
    "three numbers": ({"frames": (3, 9, 15)}, "two whole numbers"),
    "floats": ({"frames": (3.0, 15.0)}, "no whole number"),
    "truth": ({"frames": (False, True)}, "no whole number"),
    "backwards": ({"frames": (15, 3)}, "no range"),
    "negative": ({"frames": (-1, 3)}, "no range"),
    "beyond the table": ({"frames": (3, 19)}, r"positions \[0, 3\)|positions \[0, 4\)"),
    "far beyond the table": ({"frames": (0, 1 << 60)}, "asked for"),
    "a name that is none": ({3: (3, 15)}, "3"),
}


def refused(one: World, request: Any, text: str) -> None:
    """Every decode worker refuses `request`, says `text`, and not one byte of it changes."""
    for reader, memory in one.decode:
        refill(memory, EMPTY)
        failed = looked_at(reader.submit(request, 5))
        assert (failed.state, type(failed.error), failed.untrusted) == ("failed", errors.BadRequestError, {})
        with pytest.raises(errors.BadRequestError, match=text):
            failed.wait()
        assert all((allocation == EMPTY).all() for allocation in memory.allocations)
        assert reader.quarantined() == {}


@pytest.mark.parametrize("name", BAD)
def test_lengths_that_do_not_fit_are_refused(every: World, name: str) -> None:
    lengths, text = BAD[name]
    refused(every, replace(runtime_request(REQUEST, "r"), lengths=lengths), text)
    move(every, REQUEST, "next")


# Positions of blocks of 4 that tokens 0..20 need.
NEEDED = {"window": {3, 4, 5}, "sinks": {0, 3, 4, 5}, "chunk": {4, 5}, "chunk and sinks": {0, 4, 5}}


def clipped(gone: set[int]) -> Request:
    """The request with prefill blocks at these positions null."""
    kept = block_table(0, (None if n in gone else block for n, block in enumerate(plain_ids(CONTEXT.ids))))
    return replace(REQUEST, prefill={**REQUEST.prefill, "a": kept})


@pytest.mark.parametrize("name", NEEDS)
def test_prefill_may_lack_blocks_that_are_not_needed(name: str) -> None:
    """Decode has all of its blocks: those that are not needed are not written."""
    with made(NEEDS[name]) as one:
        move(one, clipped(set(range(6)) - NEEDED[name]), "nulls")
        first = min(NEEDED[name])
        short = block_table(first, CONTEXT.ids[first:])
        move(one, replace(REQUEST, prefill={**REQUEST.prefill, "a": short}), "begins later")
        mine = block_table(0, (6 if 0 in NEEDED[name] else None, None, 3, 4))
        move(one, replace(clipped(set(range(6)) - NEEDED[name]), decode={**REQUEST.decode, "a": mine}), "both")


@pytest.mark.parametrize("name", NEEDS)
def test_a_needed_block_that_lacks_is_refused_before_bytes_move(name: str) -> None:
    with made(NEEDS[name]) as one:
        for position in sorted(NEEDED[name]):
            refused(one, runtime_request(clipped({position}), "r"), f"no block at position {position}")
        for kept in (block_table(0, CONTEXT.ids[:-1]), block_table(5, CONTEXT.ids[5:]), block_table(0, ())):
            asked = replace(REQUEST, prefill={**REQUEST.prefill, "a": kept})
            refused(one, runtime_request(asked, "r"), "the block table holds positions")
        move(one, REQUEST, "next")


def test_what_is_not_needed_is_not_written() -> None:
    """By plain counting: six tokens of two bytes in two layers for a head, and nothing else of the cache."""
    with made(NEEDS["window"]) as one:
        for worker, memory in one.prefill:
            stamp(memory, one.regions, REQUEST.prefill)
            worker.hold("r")
        for reader, memory in one.decode:
            reader.submit(runtime_request(REQUEST, "r"), 5).wait()
            written = {name: int((view < EMPTY).sum()) for name, view in memory.planes.items()}
            assert written == {"a.0": 12, "a.1": 12, "x.1": 24, "s.0": 12}
            assert wrong(memory, one.regions, REQUEST) == []
            assert not any((allocation == PADDED).any() for allocation in memory.allocations)


def test_a_row_of_several_tokens_that_is_not_full_needs_no_block() -> None:
    row = cache("layer { block { k[token dim] } }", tensor("k", 1, None, 4, token=0, dim=2), name="a", kernel=16)
    both = side([row]), side([row])
    request = ask((0, 17), {"a": block_table(0, (3,))}, {"a": block_table(0, (1,))})
    nothing = ask((16, 18), {"a": block_table(0, ())}, {"a": block_table(0, ())})
    with world(compile_bound(*both).plan, both, [request]) as made:
        move(made, request, "r")
        move(made, nothing, "n")
