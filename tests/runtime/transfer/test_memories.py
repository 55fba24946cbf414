"""Caches in several memories: every descriptor leads from one type of memory to one, and the same bytes arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from tests.demo.test_demo import needs_nixl
from tests.end_to_end.memory import regions_of, stamp, wrong
from tests.random_sides.draw import Case, case
from tests.random_sides.sides import cache as stored
from tests.random_sides.sides import side, tensor
from tests.requests import ask
from tests.runtime.helpers.drawn import Move, fed, whole
from tests.runtime.helpers.ends import Ends, ends
from tests.runtime.helpers.memories import HostNixl, in_memories, pretended
from tests.runtime.staging.test_staged import WAYS, Staged, shares
from tests.runtime.transfer.test_chunks import shared

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.plan import request as requests
from kvplan.plan.block_tables import Slot
from kvplan.plan.types import Plan
from kvplan.runtime import errors
from kvplan.runtime.transfer import gather, prepared, slices
from kvplan.runtime.transfer.demand import demand


class Drawn:
    """A random case, its caches in random memories."""

    def __init__(self, seed: int, strategy: str = "direct") -> None:
        self.case: Case = case(seed)
        random = Random(seed)
        self.sides: tuple[BoundSide, BoundSide] = tuple(
            in_memories(side, random) for side in (self.case.prefill, self.case.decode)
        )  # type: ignore[assignment]
        self.plan: Plan = compile_bound(*self.sides, {"elect": self.case.elect, "strategy": strategy}).plan

    def world(self, transport: Any = None) -> Ends:
        made = ends(self.plan, self.sides, self.case.request, transport)
        for memory in made.prefill:
            stamp(memory, self.regions, self.case.request.prefill)
        return made

    @property
    def said(self) -> str:
        """The text that a failing test shows."""
        return "\n".join([*self.case.texts, *(f"{c.name} {c.memory}" for side in self.sides for c in side.caches)])

    @property
    def regions(self) -> Any:
        return regions_of(self.sides, [self.case.request])

    def wrong(self, world: Ends) -> list[str]:
        found = [wrong(memory, self.regions, self.case.request, self.plan.skipped) for memory in world.decode]
        return [text for some in found for text in some]


def moves(drawn: Drawn, chunks: bool) -> Iterator[Move]:
    return fed(drawn.plan, drawn.case, True) if chunks else whole(drawn.plan, drawn.case)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), push=st.booleans(), chunks=st.booleans(), most=st.integers(1, 5000))
def test_every_byte_arrives(seed: int, push: bool, chunks: bool, most: int) -> None:
    """In slices and in chunks; the agents refuse a descriptor of another type than its memory was registered as."""
    drawn = Drawn(seed)
    note(drawn.said)
    world = drawn.world()
    try:
        for theirs, ours, runs, layers in moves(drawn, chunks):
            link = world.link(theirs, ours, push, layers)
            pieces = slices.cut(link, runs, most)
            assert sum(size for _, size in pieces) == slices.size(link, runs)
            for piece, size in pieces:
                assert world.move(link, piece).bytes == size
            link.release()
    except errors.BadRequestError as error:
        assume(not shared(error))
        raise
    assert drawn.wrong(world) == []


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from((8 * 256, 1 << 22)), foreseen=st.booleans())
def test_every_byte_arrives_by_way_of_a_stage(way: str, seed: int, size: int, foreseen: bool) -> None:
    """Buffers lie in the memory of the pages that are copied, whatever they are read from or written to."""
    drawn = Drawn(seed, WAYS[way][0])
    note(drawn.said)
    assume(all(low < high for holds in shares(drawn.plan) for _, _, (low, high) in holds))
    with pretended():
        world = drawn.world()
        staged = Staged(world, way, size, foreseen)
        try:
            for theirs, ours, runs, layers in whole(drawn.plan, drawn.case):
                staged.move(theirs, ours, runs, layers)
        finally:
            staged.close()
    assert drawn.wrong(world) == []


@needs_nixl
@pytest.mark.parametrize("push", [False, True])
def test_every_byte_arrives_over_nixl_with_two_registrations(push: bool) -> None:
    drawn = mixed()
    world = drawn.world(lambda name: HostNixl(name, telemetry=True))
    try:
        assert all(len(agent.types) == 2 for agent in world.every())
        for theirs, ours, runs, _ in whole(drawn.plan, drawn.case):
            world.move(world.link(theirs, ours, push), runs)
        assert drawn.wrong(world) == []
    finally:
        world.close()


@cache
def of_seed(seed: int) -> Drawn:
    """The case of a seed, compiled once for all tests that look through the first ones."""
    return Drawn(seed)


@cache
def mixed() -> Drawn:
    """A case of which both sides have caches in one memory, and in two."""
    every = map(of_seed, range(1000))
    return next(d for d in every if all({"host", "device+host"} <= {c.memory for c in s.caches} for s in d.sides))


gather_batched = gather.batched
MUTANTS: dict[str, Any] = {
    "all spans in one transfer": (gather, "batched", lambda link, rows: (
        rows, (gather.SpanBatch(0, len(rows), *link.types(0, 0)),)
    )),
    "spans that stay in their order": (gather, "batched", lambda link, rows: (
        rows, gather_batched(link, rows)[1]
    )),
    "the peer's type for both sides": (prepared.PreparedLink, "types", lambda link, p, d: (
        (link.decode if link.push else link.prefill).mem_types[d if link.push else p],
    ) * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_descriptor_of_another_type_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of these rules, the runtime refuses some transfer before a byte moves."""
    monkeypatch.setattr(*MUTANTS[name])
    said = [refusal(of_seed(seed)) for seed in range(40)]
    assert {text.rpartition(" that ")[0].rpartition(" ")[0] for text in said if text} == {"a span leaves the"}


def refusal(drawn: Drawn) -> str:
    """The reason why an agent refuses a transfer; empty if all bytes arrive."""
    world = drawn.world()
    try:
        for theirs, ours, runs, _ in whole(drawn.plan, drawn.case):
            world.move(world.link(theirs, ours, False), runs)
    except errors.AddressError as error:
        return str(error)
    assert drawn.wrong(world) == []
    return ""


def test_slices_of_all_memories_count_against_the_limits() -> None:
    """A request is cut by its bytes, whatever memory they lie in; a slice is one transfer for each pair of types."""
    drawn = mixed()
    world, several = drawn.world(), 0
    for theirs, ours, runs, _ in whole(drawn.plan, drawn.case):
        link = world.link(theirs, ours, False)
        load = gather.gather(link, runs, world.scratch)
        types = {(batch.local_type, batch.remote_type) for batch in load.batches}
        assert len(types) == len(load.batches)
        several += len(types) > 1
        starts = [0, *(batch.end for batch in load.batches)]
        assert [batch.first for batch in load.batches] == starts[:-1]
        assert starts[-1] == len(load.local_spans)
        assert world.execute(link, runs, max(load.bytes // 3, 1)).meter.moved == load.bytes
    assert several
    assert drawn.wrong(world) == []


@pytest.mark.parametrize("words", [("host", "host"), ("host", "device"), ("", ""), ("device+host", "device+host")])
@pytest.mark.parametrize("push", [False, True])
def test_states_are_posted_together_if_they_lie_in_one_memory(words: tuple[str, str], push: bool) -> None:
    names, tables = ("s", "t"), ({"s": Slot(2, 6), "t": Slot(1, 6)}, {"s": Slot(0, 6), "t": Slot(2, 6)})
    plain = [stored("layer { block { z[st] } }", tensor("z", 4, st=3), name=name, layers=(0, 1)) for name in names]
    there = side(plain)
    here = side([replace(one, memory=word) for one, word in zip(plain, words, strict=True)])
    plan, request = compile_bound(there, here).plan, ask((0, 6), *tables)
    world, regions = ends(plan, (there, here), request), regions_of((there, here), [request])
    stamp(world.prefill[0], regions, request.prefill)
    link = world.link(0, 0, push)
    wanted = demand(plan, 0, requests.check(plan, replace(request, id="r"), {}, {}))
    assert len(gather.gather(link, wanted.of(0), world.scratch).batches) == len(
        {*words[0].split("+"), *words[1].split("+")}
    )
    world.move(link, wanted.of(0))
    assert wrong(world.decode[0], regions, request) == []
