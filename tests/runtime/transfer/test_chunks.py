"""Chunks of a request together move what the whole request moves, each byte once; and what does not fit is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.random_sides.draw import case
from tests.runtime.helpers.ends import asked as runtime_request
from tests.runtime.helpers.plans import Shape, plan

from kvplan.compiler.api import compile_bound
from kvplan.plan import expand as rows
from kvplan.plan import layers, spans
from kvplan.plan import planes as names
from kvplan.plan import request as requests
from kvplan.plan.request import Request
from kvplan.plan.types import Ints, Plan, Read
from kvplan.runtime import Blocks, Ring, Slot, errors
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover
from kvplan.runtime.transfer.demand import Demand, DemandRules, demand


def tables_of(read: Read, plan: Plan, worker: int, chosen: frozenset[int] | None) -> layers.Tables:
    found = rows.of_read(read)
    return found if chosen is None else layers.chosen(plan, worker, read, found, chosen)


def moved(
    plan: Plan, worker: int, wanted: Demand, chosen: frozenset[int] | None = None, *, pages: bool = True
) -> Counter[tuple[int, ...]]:
    """Every byte that a demand moves: (prefill worker, plane, offset, decode plane, offset), by the plan's tables.

    A whole page moves with padding that lies between its tokens on both sides; without `pages` none does.
    """
    found: Counter[tuple[int, ...]] = Counter()
    for read in plan.reads[worker] if wanted.runs else ():
        runs = wanted.runs[read.groups, plan.prefill.workers[read.worker].shard]
        page, token = tables_of(read, plan, worker, chosen)
        strides = names.strides(plan.prefill.workers[read.worker]), names.strides(plan.decode.workers[worker])
        whole = spans.whole_pages(spans.pair_named(plan, read.groups).page_rows, read.table, runs)
        whole &= pages or not token
        copies = [spans.page_spans(page, spans.pick(runs, whole), *strides)]
        copies += [spans.token_spans(token, spans.pick(runs, ~whole), *strides)]
        found.update((read.worker, *byte) for byte in spelled(np.concatenate(copies)).tolist())
    return found


def spelled(copies: Ints) -> Ints:
    size = copies[:, 4]
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    found = np.repeat(copies[:, :4], size, axis=0)
    found[:, 1] += within
    found[:, 3] += within
    return found


def together(plan: Plan, worker: int, request: Request, fed: Sequence[Chunk]) -> Counter[tuple[int, ...]]:
    """All bytes that the chunks move, with the blocks that each says it writes."""
    bare, found = replace(request, prefill={}), Counter[tuple[int, ...]]()
    limits, cover = (
        DemandRules(plan, worker).foreseen(bare).written if moves(request) else {},
        ChunkCover(plan, request),
    )
    for given_ in fed:
        if (chunk := chunks.received(plan, bare, given_, {}, cover)) is None:
            continue
        one = chunks.part(DemandRules(plan, worker), bare, chunk)
        assert all(set(ids.tolist()) <= set(limits[group].tolist()) for group, ids in one.written.items())
        found += moved(plan, worker, one, chunk.layers)
    assert cover.ended
    return found


def moves(request: Request) -> bool:
    return any(first < end for first, end in (request.tokens, *request.lengths.values()))


def grid(random: Random, plan: Plan, request: Request, split: bool) -> list[Chunk]:
    """Chunks in any order that cover a request; where layers are split, with cuts of their own for either half."""
    every = sorted(layers.moved(plan, None))
    half = frozenset(random.sample(every, len(every) // 2)) if split else frozenset[int]()
    parts: list[frozenset[int] | None] = [half, frozenset(every) - half] if half else [None]
    found = [Chunk(cut, False, part, {}) for part in parts for cut in cuts(random, *request.tokens)]
    random.shuffle(found)
    whole = [replace(one, tables=narrowed(plan, request, one.tokens)) for one in found]
    return [*whole[:-1], replace(whole[-1], last=True)]


def shared(error: Exception) -> bool:
    return "share a page: feed them together" in str(error)


def cuts(random: Random, first: int, end: int) -> list[tuple[int, int]]:
    edges = sorted(
        random.sample(range(first + 1, end), min(random.randint(0, 4), end - first - 1)) if end > first else []
    )
    edges = [first, *edges, end]
    return list(pairwise(edges))


def narrowed(plan: Plan, request: Request, tokens: tuple[int, int]) -> dict[str, Blocks | Slot | Ring]:
    """The prefill tables as they stand after a chunk, with no more blocks than it needs where that is plain."""
    found: dict[str, Blocks | Slot | Ring] = {}
    for name, table in request.prefill.items():
        group = spans.group_named(plan.prefill, name)
        pairs = [pair for pair in plan.group_pairs if pair.prefill == name]
        late = tokens[1] == request.tokens[1] or group.length != "context"
        if isinstance(table, Slot | Ring):
            found[name] = table if late else replace(table, at=tokens[1])
        elif (
            group.length != "context"
            or group.shards > 1
            or any(spans.group_named(plan.decode, pair.decode).ring for pair in pairs)
        ):
            found[name] = table
        else:
            unit = max((pair.rows for pair in pairs), default=1)
            low = max(tokens[0] // unit * unit // group.tokens, table.first)
            high = max(-(-tokens[1] // group.tokens), low)
            found[name] = Blocks(low, table.ids[low - table.first : high - table.first])
    return found


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans())
def test_the_chunks_of_a_request_move_what_all_of_it_moves(seed: int, split: bool) -> None:
    drawn = case(seed)
    note("\n".join(drawn.texts))
    made = compile_bound(drawn.prefill, drawn.decode, {"elect": drawn.elect}).plan
    asked = requests.check(made, runtime_request(drawn.request, "r"), {}, {})
    fed = grid(Random(seed + 1), made, asked, split)
    for worker in range(len(made.reads)):
        whole = demand(made, worker, asked)
        try:
            found = together(made, worker, asked, fed)
        except errors.BadRequestError as error:
            if split and shared(error):
                return
            raise
        assert moved(made, worker, whole, pages=False) <= found <= moved(made, worker, whole)


def test_most_cases_are_split_by_layers() -> None:
    """Windows, sinks, rings, states and turns of tokens are among the cases, and most can be fed by layers."""
    refused, sorts = 0, Counter[str]()
    for seed in range(40):
        drawn = case(seed)
        made = compile_bound(drawn.prefill, drawn.decode).plan
        asked = requests.check(made, runtime_request(drawn.request, "r"), {}, {})
        fed = grid(Random(seed), made, asked, True)
        try:
            for worker in range(len(made.reads)):
                together(made, worker, asked, fed)
        except errors.BadRequestError as error:
            if not shared(error):
                raise
            refused += 1
        groups = [*made.prefill.groups, *made.decode.groups]
        marks = {"state": any(g.store == "state" for g in groups), "ring": any(g.ring for g in groups)}
        marks |= {"turns": any(g.shards > 1 for g in groups), "rows": any(pair.rows > 1 for pair in made.group_pairs)}
        marks |= {
            "window": any(pair.needs.keep for pair in made.group_pairs),
            "sink": any(p.needs.sink for p in made.group_pairs),
        }
        marks |= {
            "chunk": any(pair.needs.chunk for pair in made.group_pairs),
            "own": any(g.length != "context" for g in groups),
        }
        sorts.update(mark for mark, there in marks.items() if there)
    assert refused < 20
    assert len(sorts) == 8, sorts


PLAN = plan(Shape(1), Shape(1, kernel=6))
SIDES: dict[str, Blocks | Slot | Ring] = {"kv": Blocks(0, np.array([7, 2, 9, 4])), "state": Slot(3, 14)}
REQUEST = requests.check(PLAN, Request("r", (2, 14), {}, SIDES), {}, {"kv": 40, "state": 40}, fed=True)


def chunk(first: int, end: int, *, last: bool = False, some: Any = None, given: Any = SIDES) -> Chunk:
    return Chunk((first, end), last, some, given)


def test_states_move_with_the_chunk_that_ends_the_request_and_an_empty_last_one_moves_nothing() -> None:
    early, late, empty = chunk(2, 9), chunk(9, 14), chunk(14, 14, last=True)
    found = [chunks.part(DemandRules(PLAN, 0), REQUEST, one) for one in (early, late, empty)]
    assert [len(one.runs["state", 0].count) for one in found] == [0, 1, 0]
    assert [int(one.runs["kv", 0].count.sum()) for one in found] == [7, 5, 0]
    assert [sorted(one.written) for one in found] == [["kv", "state"]] * 3
    assert [ids.tolist() for ids in found[0].written.values()] == [[2, 7], []]


def test_one_prefill_worker_needs_only_its_own_tables() -> None:
    apart = plan(Shape(2), Shape(1))
    only = chunks.part(DemandRules(apart, 0), REQUEST, chunk(2, 14), 1)
    assert set(only.runs) == {("kv", 0), ("state", 0)}
    with pytest.raises(errors.BadRequestError, match="'kv' of the prefill side is missing from the request and from"):
        chunks.part(DemandRules(apart, 0), REQUEST, chunk(2, 14, given={}), 1)


BAD: dict[str, tuple[Chunk, str]] = {
    "backwards": (chunk(9, 5), "no range"),
    "tables that are a list": (chunk(2, 5, given=[1]), "mapping by group, not list"),
    "an unknown group": (chunk(2, 5, given={"vk": SIDES["kv"]}), "no group 'vk'"),
    "the pool ends": (chunk(2, 5, given={"kv": Blocks(0, np.array([40]))}), "ids from 40 to 40, the pool has 40"),
    "ids that are no row": (chunk(2, 5, given={"kv": Blocks(0, np.zeros((1, 1), int))}), "one row of integers"),
    "a slot for blocks": (chunk(2, 5, given={"kv": Slot(3, 5)}), "give Blocks, not Slot"),
    "a state that is behind": (chunk(2, 5, given={"state": Slot(3, 4)}), "after 4 tokens, the chunk ends at 5"),
    "a state that went on": (chunk(2, 14, given={"state": Slot(3, 15)}), "after 15 tokens, the request ends at 14"),
}


def received(given: Chunk) -> Chunk:
    found = chunks.received(PLAN, REQUEST, given, {"kv": 40, "state": 40}, ChunkCover(PLAN, REQUEST))
    assert found is not None
    return found


@pytest.mark.parametrize("name", BAD)
def test_chunks_that_do_not_fit_are_refused(name: str) -> None:
    given, text = BAD[name]
    with pytest.raises(errors.BadRequestError, match=text):
        received(given)


def test_what_a_chunk_lacks_is_refused_before_bytes_move() -> None:
    for ids in ([], [7, -1]):
        short = chunk(2, 9, given={"kv": Blocks(0, np.array(ids, np.int64))})
        with pytest.raises(errors.BadRequestError, match=r"block table holds positions|no block at position 1"):
            chunks.part(DemandRules(PLAN, 0), REQUEST, received(short))


def test_a_checked_chunk_is_a_copy() -> None:
    ids = np.array([7, 2, 9, 4])
    made = received(chunk(2, 9, given={"kv": Blocks(0, ids)}))
    ids[:] = 0
    assert made.tables["kv"].ids.tolist() == [7, 2, 9, 4]  # type: ignore[union-attr]


def test_a_fed_request_needs_no_prefill_tables_and_another_does() -> None:
    bare = replace(REQUEST, prefill={})
    requests.check(PLAN, bare, {}, {}, fed=True)
    with pytest.raises(errors.BadRequestError, match="'kv' of the prefill side is missing"):
        requests.check(PLAN, bare, {}, {})
    with pytest.raises(errors.BadRequestError, match="ids from 40"):
        requests.check(PLAN, replace(bare, prefill={"kv": Blocks(0, np.array([40]))}), {"kv": 40}, {}, fed=True)
    with pytest.raises(errors.BadRequestError, match="'state' of the decode side is missing"):
        requests.check(PLAN, replace(bare, decode={"kv": SIDES["kv"]}), {}, {}, fed=True)
