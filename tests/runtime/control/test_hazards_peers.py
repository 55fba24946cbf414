"""Hazards that others met and that no transport can meet alone: unlike engines, stale cards, ids beyond an int32."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.runtime.helpers.plans import Model, Shape, matched, plan

from kvplan.plan.types import Plan, Table
from kvplan.runtime import Hub, InMemory, Memory, errors, views
from kvplan.runtime.control.card import WorkerCard, describe
from kvplan.runtime.control.handshake_checks import check_card, check_like
from kvplan.runtime.control.identity import Identity, scales
from kvplan.runtime.transfer import prepare, slices
from kvplan.runtime.transfer.gather import IndexScratch, gather
from kvplan.runtime.transfer.prepare import INT32, PreparedLink

MODEL = Model(state=False)
BASES = 1 << 40, 1 << 50


def pools(blocks: tuple[int, int], made: Any) -> list[Any]:
    """Planes side by side that nothing touches, `blocks` of them on either side."""
    found = []
    for side, base, count in zip((made.prefill, made.decode), BASES, blocks, strict=True):
        stride = side.workers[0].planes[0].stride
        size = stride * count
        given = {
            f"kv.{layer}": Memory(base + n * size, stride, count, size, allocation=(base, 2 * size))
            for n, layer in enumerate(MODEL.layers)
        }
        found.append(views(side, 0, given))
    return found


def linked(blocks: tuple[int, int], made: Any) -> PreparedLink:
    found, hub = pools(blocks, made), Hub()
    agents = [InMemory(hub) for _ in found]
    for agent, pool in zip(agents, found, strict=True):
        agent.register(pool.geometry.regions, "DRAM")
    peer = agents[1].add_peer(agents[0].metadata())
    ends = {"prefill": found[0].geometry, "decode": found[1].geometry, "peer": peer, "transport": agents[1]}
    return prepare.link(made, prefill_worker=0, decode_worker=0, **ends)  # type: ignore[arg-type]


def addresses(one: PreparedLink, p: list[int], d: list[int]) -> set[tuple[int, int, int]]:
    """(prefill address, decode address, bytes) of all that goes by address."""
    tokens = 0, 4 * len(p)
    runs = {"kv": matched(tokens, p, d)}
    load = gather(one, runs, IndexScratch())
    assert not load.banks
    rows = zip(load.remote_spans.tolist(), load.local_spans[:, 0].tolist(), strict=True)
    return {(there[0], here, there[1]) for there, here in rows}


FAR = 1 << 33


@pytest.mark.parametrize(
    ("p", "d"),
    [([7], [9]), ([FAR - 1], [9]), ([7], [FAR - 1]), ([(1 << 32) + 1, 3], [1, FAR - 1]), ([1 << 31, 1 << 32], [5, 4])],
)
def test_blocks_beyond_an_int32_go_by_address(p: list[int], d: list[int]) -> None:
    """Indices that overflowed moved no byte at all elsewhere, and said so to nobody."""
    made = plan(Shape(1), Shape(1), MODEL)
    one = linked((FAR, FAR), made)
    page = made.prefill.workers[0].planes[0].stride
    size = page * FAR
    wanted = {
        (BASES[0] + layer * size + source * page, BASES[1] + layer * size + target * page, page)
        for layer in range(2)
        for source, target in zip(p, d, strict=True)
    }
    assert addresses(one, p, d) == wanted


@pytest.mark.parametrize("blocks", [(30, 30), (INT32 // 2, 30), (INT32, INT32), (INT32 + 1, 30), (30, 1 << 33)])
def test_no_index_of_a_prepared_list_leaves_an_int32(blocks: tuple[int, int]) -> None:
    one = linked(blocks, plan(Shape(1), Shape(1), MODEL))
    for entry in one.entries:
        assert all(bank.rows * max(blocks) <= INT32 for bank in entry.banks)
        assert bool(entry.banks) == (max(blocks) <= INT32)


@pytest.mark.parametrize("most", [1, 64, 100, 1 << 20])
def test_no_post_moves_more_than_a_slice(most: int) -> None:
    """A post over shared memory copies all of its bytes before it returns."""
    one = linked((40, 40), plan(Shape(1), Shape(1), MODEL))
    ids = np.random.default_rng(0).permutation(40)
    runs = {"kv": matched((3, 157), ids, ids[::-1].copy())}
    pieces, sizes = zip(*slices.cut(one, runs, most), strict=True)
    assert [*sizes] == [slices.size(one, piece) for piece in pieces]
    assert sum(sizes) == slices.size(one, runs) == sum(gather(one, piece, IndexScratch()).bytes for piece in pieces)
    assert all(size <= most or len(piece["kv"].count) == 1 for size, piece in zip(sizes, pieces, strict=True))
    assert (len(pieces) > 1) == (most < slices.size(one, runs))


def test_a_read_that_moves_nothing_is_refused() -> None:
    made = plan(Shape(1), Shape(1), MODEL)
    empty = replace(made, reads=((replace(made.reads[0][0], table=Table(())),),))
    with pytest.raises(errors.AddressError, match="moves nothing"):
        linked((30, 30), empty)


def like(**change: Any) -> Identity:
    return replace(Identity("p", model_digest="m", revision="r1", scales=scales({"k": 1.0})), **change)


@pytest.mark.parametrize("change", [
    {"revision": "r2"}, {"revision": ""}, {"scales": scales({"k": math.nextafter(1.0, 2)})}, {"scales": ""},
    {"scales": scales({"k": 1.0, "v": 1.0})}, {"scales": scales({"v": 1.0})},
])  # fmt: skip
def test_engines_of_unlike_scales_or_revisions_are_refused_both_ways(change: dict[str, str]) -> None:
    mine, theirs = like(), like(**change)
    for one, other in ((mine, theirs), (theirs, mine)):
        with pytest.raises(errors.UnlikeError) as caught:
            check_like(one, other, "peer")
        for what in change:
            assert repr(getattr(one, what)) in str(caught.value)
            assert repr(getattr(other, what)) in str(caught.value)
    check_like(like(), like(), "peer")


def test_an_engine_does_not_meet_itself() -> None:
    mine = like()
    with pytest.raises(errors.OwnCardError, match=mine.run):
        check_like(mine, mine, "peer")


def card(metadata: bytes = b"metadata") -> tuple[WorkerCard, Plan]:
    made = plan(Shape(1), Shape(1), MODEL)
    return describe(0, made, "run", 1, pools((30, 30), made)[0].geometry, metadata, b"nonce"), made


WHOLE = bytes(range(200))


@pytest.mark.parametrize("metadata", [WHOLE[:-1], WHOLE[1:], b"", WHOLE + b"\0", WHOLE[:100] + b"\xff" + WHOLE[101:]])
def test_metadata_that_changed_on_the_way_never_reaches_the_transport(metadata: bytes) -> None:
    """NIXL takes flipped bits, and never talks to a name again whose metadata was cut off."""
    good, made = card(WHOLE)
    check_card(good, 0, "run", made, b"nonce")
    with pytest.raises(errors.CardError, match="truncated or corrupt"):
        check_card(msgspec.structs.replace(good, metadata=metadata), 0, "run", made, b"nonce")


@pytest.mark.parametrize(("asked", "error"), [
    ((0, "run", b"other"), errors.ReplayError), ((0, "another", b"nonce"), errors.StalePeerError),
    ((1, "run", b"nonce"), errors.CardError),
])  # fmt: skip
def test_cards_of_another_question_run_or_worker(asked: tuple[int, str, bytes], error: type[Exception]) -> None:
    found, made = card()
    worker, run, nonce = asked
    with pytest.raises(error):
        check_card(found, worker, run, made, nonce)
