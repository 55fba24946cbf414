"""Bytes that move through a stage equal those without one: whole, in chunks, of some layers, and the unstaged rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from tests.end_to_end.memory import EMPTY, refill, regions_of, stamp, wrong
from tests.random_sides.draw import case
from tests.random_sides.sides import cache, side, tensor
from tests.runtime.helpers.drawn import fed, whole
from tests.runtime.helpers.ends import Ends, ends
from tests.runtime.helpers.packing import LendingPeer
from tests.runtime.transfer.test_chunks import shared

from kvplan.compiler.api import compile_bound
from kvplan.plan.types import Interval, PageRange, Plan, Runs, Table
from kvplan.runtime import errors
from kvplan.runtime.staging import images, staged
from kvplan.runtime.staging.buffers import BUFFERS, SHARE, Stage
from kvplan.runtime.staging.copies import NestPlanes, by_planes
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.gather import gather_staged
from kvplan.runtime.transfer.prepared import PreparedLink

# The side that has the stage: strategy, and whether prefill writes.
WAYS = {"unpack": ("unpack", False), "pack": ("pack", True), "packed": ("pack", False), "lent": ("unpack", True)}
OWN = ("unpack", "pack")
SIZES = (BUFFERS * 256, BUFFERS * 4096, 1 << 24)


class Staged:
    """A world whose links use stages of `size` bytes."""

    def __init__(self, world: Ends, way: str, size: int, foreseen: bool) -> None:
        self.world, self.way, self.size, self.push, self.foreseen = world, way, size, WAYS[way][1], foreseen
        self.stages = dict[int, Stage]()

    def move(self, theirs: int, ours: int, runs: dict[str, Runs], layers: frozenset[int] | None = None) -> None:
        if self.way not in OWN:
            self._at_peer(theirs, ours, runs, layers)
            return
        number = theirs if self.push else ours
        stage = self.stages.setdefault(number, self.world.stage(number, self.push, self.size))
        link = self.world.link(theirs, ours, self.push, layers, stage)
        self.world.execute(link, runs, 3000, foreseen=self.foreseen)
        link.release()

    def _at_peer(self, theirs: int, ours: int, runs: dict[str, Runs], layers: frozenset[int] | None) -> None:
        peer = LendingPeer(self.world, theirs, ours, self.size, push=self.push)
        link = self.world.link(theirs, ours, self.push, layers, None, peer.stage)
        self.world.execute(link, runs, 3000, peer.step, foreseen=self.foreseen)
        link.release()
        peer.close()

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()


def shares(made: Plan) -> list[tuple[tuple[str, str, Interval], ...]]:
    return [worker.holds for side in (made.prefill, made.decode) for worker in side.workers]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from(SIZES), threads=st.booleans(), foreseen=st.booleans())
def test_every_byte_arrives(way: str, seed: int, size: int, threads: bool, foreseen: bool) -> None:
    drawn = case(seed)
    note("\n".join(drawn.texts))
    sides = drawn.prefill, drawn.decode
    made = compile_bound(*sides, {"elect": drawn.elect, "strategy": WAYS[way][0]}).plan
    # Workers without a head have no planes, and the memory of these tests does.
    assume(all(low < high for holds in shares(made) for _, _, (low, high) in holds))
    world, regions = ends(made, sides, drawn.request), regions_of(sides, [drawn.request])
    for memory in world.prefill:
        stamp(memory, regions, drawn.request.prefill)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged, "AT_ONCE", 0 if threads else 1 << 30)
        for every in (whole(made, drawn), fed(made, drawn, True)):
            for memory in world.decode:
                refill(memory, EMPTY)
            moves = Staged(world, way, size, foreseen)
            try:
                for move in every:
                    moves.move(*move)
            except errors.BadRequestError as error:
                if shared(error):
                    continue
                raise
            finally:
                moves.close()
            for memory in world.decode:
                assert wrong(memory, regions, drawn.request, made.skipped) == []


K, V = (tensor(name, 2, None, head=2, token=0, dim=8) for name in "kv")


def linked(
    way: str,
    size: int,
    theirs: str | Mapping[str, str],
    ours: str | Mapping[str, str],
    layers: frozenset[int] | None = None,
    change: Callable[[Table], Table] = lambda table: table,
) -> PreparedLink:
    """A link between two storages of K and V in two layers, with pages of four tokens; its table changed."""
    prefill, decode = (side([cache(text, K, V, name="a", layers=(0, 1), kernel=4)]) for text in (theirs, ours))
    plan = compile_bound(prefill, decode, {"strategy": way}).plan
    ((read,),) = plan.reads
    plan = replace(plan, reads=((replace(read, table=change(read.table)),),))
    world = ends(plan, (prefill, decode), case(1).request)
    push = WAYS[way][1]
    return world.link(0, 0, push, layers, world.stage(0, push, size))


HND = "layer { block { head { token { k[dim] v[dim] } } } }"
NHD = "layer { block { token { head { k[dim] v[dim] } } } }"
PAGE = 4 * 2 * 2 * 16


def runs(*of: tuple[int, int, int, int, int]) -> Runs:
    return Runs(*(np.array(column, np.int64) for column in zip(*of, strict=True)))


def test_a_page_of_which_some_is_asked_for_is_read_whole() -> None:
    link = linked("unpack", 1 << 20, HND, NHD)
    direct, (move,) = slices.through_stage(link, {"a": runs((7, 0, 3, 0, 4), (8, 0, 4, 0, 4), (9, 0, 5, 0, 3))})
    assert (direct, [blocks.tolist() for _, _, blocks in move.piece.parts]) == (None, [[7, 8, 9]])
    assert (move.piece.moved, move.piece.bytes) == (11 * PAGE // 4 * 2, 3 * PAGE * 2)


@pytest.mark.parametrize(
    ("theirs", "ours", "rows", "sizes", "count"),
    [
        (HND, NHD, (0, 3), [2 * PAGE + PAGE // 4 * 3], 3),
        (HND, NHD, (1, 2), [PAGE // 4 * 2, 2 * PAGE], 3),
        (NHD, HND, (1, 2), [PAGE // 8 * 2, PAGE // 8 * 2, 2 * PAGE], 4),
    ],
)
def test_of_a_page_that_is_not_filled_what_was_asked_for_is_written(
    theirs: str, ours: str, rows: tuple[int, int], sizes: list[int], count: int
) -> None:
    """Two pages and some rows of a third one, of two layers each, in as few spans as decode's pages have them."""
    link = linked("pack", 1 << 20, theirs, ours)
    at, tokens = rows
    direct, (move,) = slices.through_stage(link, {"a": runs((7, 0, 3, 0, 4), (8, 0, 4, 0, 4), (9, 0, 5, at, tokens))})
    load = gather_staged(link, move.piece)
    assert direct is None
    assert load.remote_spans[:, 1].tolist() == load.local_spans[:, 1].tolist()
    assert sorted(load.remote_spans[:, 1].tolist()) == sorted(sizes * 2)
    assert (load.spans, load.bytes) == (count * 2, sum(sizes) * 2)
    assert move.piece.bytes == move.piece.moved == load.bytes


def test_a_part_of_an_image_may_have_rows_of_one_sort_of_hops_only() -> None:
    """K lies in tiles of two tokens, v does not, and a buffer has room for one of them."""
    theirs = {
        "k": "layer { block { head { token/2 { dim { token%2 { k } } } } } }",
        "v": "layer { block { head { token { v[dim] } } } }",
    }
    ours = {"k": "layer { block { token { head { k[dim] } } } }", "v": "layer { block { token { head { v[dim] } } } }"}
    link = linked("pack", BUFFERS * PAGE // 2, theirs, ours)
    (entry,) = link.entries
    assert len({nest.hops for nest in entry.read.placed.per_token}) == 2
    assert len(entry.parts) == 4
    direct, moves = slices.through_stage(link, {"a": runs((7, 0, 3, 0, 4), (8, 0, 4, 0, 3))})
    sizes = [gather_staged(link, move.piece).local_spans[:, 1].tolist() for move in moves]
    assert (direct, sum(map(sum, sizes))) == (None, 7 * PAGE // 4 * 2)


@pytest.mark.parametrize(("room", "parts", "pieces"), [(4, 1, 2), (2, 1, 3), (1, 2, 6)])
def test_a_piece_fits_a_buffer(room: int, parts: int, pieces: int) -> None:
    """A buffer of `room` pages of one layer; a block has two of them."""
    link = linked("unpack", BUFFERS * room * PAGE, HND, NHD)
    (entry,) = link.entries
    assert len(entry.parts) == parts
    _, moves = slices.through_stage(link, {"a": runs(*((n, 0, n, 0, 4) for n in range(3)))})
    assert len(moves) == pieces
    assert all(move.piece.bytes <= room * PAGE for move in moves)
    assert sum(move.piece.bytes for move in moves) == 3 * 2 * PAGE


def test_a_piece_has_no_more_runs_than_a_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks with one run for every token, in a buffer with room for all of them."""
    link = linked("unpack", BUFFERS * 16 * PAGE, HND, NHD)
    tokens = {"a": runs(*((block, token, block, token, 1) for block in range(3) for token in range(4)))}
    assert len(slices.through_stage(link, tokens)[1]) == 1
    monkeypatch.setattr(staged, "MOST_RUNS", 8)
    _, moves = slices.through_stage(link, tokens)
    assert [sum(len(of.count) for _, of, _ in move.piece.parts) for move in moves] == [8, 4]


@given(st.lists(st.integers(1, staged.UNCUT), min_size=2, max_size=12), st.integers(1, 8))
def test_what_is_not_small_is_cut_in_two_at_least_and_not_in_more_than_need_be(sizes: list[int], times: int) -> None:
    weight, most = np.array(sizes), times * staged.UNCUT
    cuts = staged.edges(weight, staged.limit(weight, most))
    pieces = [int(weight[low:high].sum()) for low, high in pairwise(cuts)]
    assert sum(pieces) == sum(sizes)
    assert all(size <= most for size in pieces)
    assert len(pieces) > 1 or sum(sizes) <= staged.UNCUT
    assert len(pieces) <= max(len(staged.edges(weight, most)) - 1, 3)


def test_blocks_side_by_side_are_one_span_only_where_every_row_is_all_of_its_block() -> None:
    """A row of k is all of its block; behind a row of v its block has padding."""
    theirs = {
        "one": "layer { block { head { token { k[dim] } } } }",
        "two": "layer { block { head { token { v[dim] } } pad(64) } }",
    }
    link = linked("unpack", 1 << 20, theirs, NHD)
    _, (move,) = slices.through_stage(link, {"a": runs(*((7 + n, 0, n, 0, 4) for n in range(3)))})
    load = gather_staged(link, move.piece)
    half = PAGE // 2
    assert sorted(load.remote_spans[:, 1].tolist()) == [half] * 6 + [3 * half] * 2
    assert load.spans == 12


def test_a_page_that_fits_no_buffer_goes_straight() -> None:
    link = linked("unpack", BUFFERS * (PAGE - 64), HND, NHD)
    assert [entry.parts for entry in link.entries] == [()]
    assert all(entry.banks for entry in link.entries)


HUGE: dict[str, Callable[[Table], Table]] = {
    "a range": lambda table: replace(table, unpack=(PageRange(bytes=1 << 70),)),
    "a plane": lambda table: replace(table, unpack=(replace(table.unpack[0], plane=1 << 63),)),
    "a nest": lambda table: replace(table, per_page=(replace(table.per_page[0], bytes=1 << 70),)),
}


@pytest.mark.parametrize("change", HUGE)
def test_a_number_that_is_no_address_is_refused(change: str) -> None:
    with pytest.raises(errors.AddressError, match="64 bits"):
        linked("unpack", 1 << 20, HND, NHD, change=HUGE[change])


@pytest.mark.parametrize("way", OWN)
def test_a_link_of_some_layers_images_those_only(way: str) -> None:
    link = linked(way, 1 << 20, HND, NHD, frozenset({1}))
    ((part,),) = (entry.parts for entry in link.entries)
    assert (part.image.plane.tolist(), part.image.size) == ([1], PAGE)


def test_a_row_that_some_layers_do_not_fill_is_written_straight() -> None:
    """Decode has both layers in a page."""
    both = "block { token { layer { head { k[dim] v[dim] } } } }"
    whole, some = (linked("pack", 1 << 20, HND, both, layers) for layers in (None, frozenset({0, 1})))
    assert [len(entry.parts) for link in (whole, some) for entry in link.entries] == [1, 1]
    link = linked("pack", 1 << 20, HND, both)
    (entry,) = link.entries
    (part,) = entry.parts
    halved = [NestPlanes(nest.firsts[:1], nest.loops, nest.hops) for nest in map(by_planes, entry.read.placed.per_page)]
    between = staged.StagedEnds(True, link.decode, link.prefill, 1 << 20)
    assert images.parts(entry.pair, (0, entry.read), (halved, ()), between, part.page_rows) == ()


def test_a_stage_that_is_stuck_is_gone_without() -> None:
    link = linked("unpack", 1 << 20, HND, NHD)
    assert link.stage is not None
    assert link.staged
    buffers = link.stage.of(("DRAM", 0))
    for number in range(SHARE):
        buffer = buffers.borrow(number, link.peer)
        assert buffer is not None
        buffers.keep(buffer)
    assert not link.staged
