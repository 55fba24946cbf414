"""Digests of hand-made engines: what is swapped, flipped, padded, missing or said wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.runtime.helpers import plans
from tests.runtime.helpers.plans import ROW, STATE, Bytes, Model, Shape, held
from tests.runtime.helpers.sides import added, of_side

from kvplan.plan.block_tables import Slot, Tables
from kvplan.plan.errors import BadRequestError, PlanFormatError
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Group, Needs, Plan, Side
from kvplan.runtime.checksum import checksum, elements
from kvplan.runtime.checksum.checksum import Sample, Sums, check, first_unlike, of_read
from kvplan.runtime.checksum.elements import IndexDigit, LayerSheet, TensorField
from kvplan.runtime.checksum.rows import needed
from kvplan.runtime.errors import ChecksumError, RegisterError
from kvplan.runtime.memory.register import Pool, views

TOKENS, SLOT, BLOCKS = 40, 2, 24
MODEL = Model(heads=4)
Content = tuple[Bytes, Bytes]


def content(seed: int = 0) -> Content:
    """k[layer, head, token, byte] and s[layer, head, byte]."""
    random = np.random.default_rng(seed)
    size = len(MODEL.layers), MODEL.heads
    return random.integers(0, 256, (*size, TOKENS, ROW), np.uint8), random.integers(0, 256, (*size, STATE), np.uint8)


def plan(prefill: Shape, decode: Shape) -> Plan:
    return plans.plan(prefill, decode, MODEL)


def tables(shape: Shape, seed: int) -> Tables:
    count = -(-TOKENS // (shape.kernel * shape.ratio))
    ids = np.random.default_rng(seed).permutation(BLOCKS)[:count]
    return {"kv": Blocks(0, ids.astype(np.int64)), "state": Slot(SLOT, TOKENS)}


def memory(shape: Shape, worker: int, given: Tables, what: Content, fill: int) -> dict[str, Bytes]:
    heads, blocks = held(MODEL, shape, worker), given["kv"]
    found: dict[str, Bytes] = {}
    assert isinstance(blocks, Blocks)
    size = len(heads) * shape.kernel * ROW
    for index, layer in enumerate(MODEL.layers):
        page = np.full((BLOCKS * shape.ratio, size + shape.tail), fill, np.uint8)
        state = np.full((BLOCKS, len(heads), STATE), fill, np.uint8)
        for token in range(TOKENS):
            at, row = divmod(token % (shape.kernel * shape.ratio), shape.kernel)
            block = int(blocks.ids[token // (shape.kernel * shape.ratio)]) * shape.ratio + at
            inner = page[block, :size].reshape(len(heads), shape.kernel, ROW)
            inner[:, row] = what[0][index, heads.start : heads.stop, token]
        state[SLOT] = what[1][index, heads.start : heads.stop]
        found |= {f"kv.{layer}": page, f"state.{layer}": state.reshape(BLOCKS, -1)}
    return found


def pools(side: Side, shape: Shape, given: Tables, what: Content, fill: int = 0) -> list[Pool]:
    arrays = [memory(shape, number, given, what, fill) for number in range(shape.workers)]
    return [views(side, number, one) for number, one in enumerate(arrays)]


SHAPES = {
    "one": Shape(1),
    "two, large blocks": Shape(2, kernel=5, ratio=2),
    "three, uneven": Shape(3, kernel=8, tail=16),
    "copies": Shape(8, kernel=2, ratio=4, tail=3),
}


def whole(shape: Shape, what: Content, sample: Sample = checksum.EVERY, fill: int = 0, seed: int = 7) -> Sums:
    made, given = plan(shape, Shape(1)), tables(shape, seed)
    every = pools(made.prefill, shape, given, what, fill)
    return added(*(of_side(pool, given, (0, TOKENS), sample=sample) for pool in every))


def reads(what: Content, theirs: Content, tokens: tuple[int, int] = (0, TOKENS)) -> list[tuple[Sums, Sums]]:
    """The digests of every read by both roles, each computed over its own content."""
    shapes = SHAPES["two, large blocks"], SHAPES["three, uneven"]
    made, given = plan(*shapes), [tables(shape, seed) for seed, shape in enumerate(shapes)]
    request = Request("r", tokens, given[0], given[1])
    p_pools = pools(made.prefill, shapes[0], given[0], what, 1)
    d_pools = pools(made.decode, shapes[1], given[1], theirs, 2)
    links = sorted({(read.worker, d) for d, every in enumerate(made.reads) for read in every})
    return [
        (of_read(made, p, d, "prefill", p_pools[p], request), of_read(made, p, d, "decode", d_pools[d], request))
        for p, d in links
    ]


@pytest.mark.parametrize("sample", [checksum.EVERY, Sample(4), Sample(4, seed=1)])
def test_it_does_not_depend_on_workers_blocks_or_padding(sample: Sample) -> None:
    found = [whole(shape, content(), sample, fill, seed=fill) for fill, shape in enumerate(SHAPES.values())]
    assert set(found[0]) == {(name, layer) for name in ("kv", "state") for layer in MODEL.layers}
    assert all(found[0].values())
    assert found == [found[0]] * len(found)


def test_both_roles_of_a_read_agree() -> None:
    for tokens in ((0, TOKENS), (7, TOKENS), (TOKENS, TOKENS)):
        for mine, theirs in reads(content(), content(), tokens):
            assert mine == theirs
            assert any(mine.values()) == (tokens[0] < tokens[1])


def swapped(axis: int) -> Callable[[Content], Content]:
    def change(what: Content) -> Content:
        k, s = (one.copy() for one in what)
        k[:] = np.moveaxis(np.moveaxis(k, axis, 0)[[1, 0, *range(2, k.shape[axis])]], 0, axis)
        return k, s

    return change


def mirrored(what: Content) -> Content:
    """Element 2 of head 1 and element 1 of head 2 changed for each other."""
    k, s = (one.copy() for one in what)
    k[:, 1, :, 4:6], k[:, 2, :, 2:4] = what[0][:, 2, :, 2:4], what[0][:, 1, :, 4:6]
    return k, s


def flipped(what: Content) -> Content:
    k, s = (one.copy() for one in what)
    k[1, 2, 17, 5] ^= 0x80
    return k, s


def state_flipped(what: Content) -> Content:
    k, s = (one.copy() for one in what)
    s[0, 3, 23] ^= 1
    return k, s


CHANGES = {
    "layers": (swapped(0), ("kv", 3)),
    "heads": (swapped(1), ("kv", 3)),
    "tokens": (swapped(2), ("kv", 3)),
    "bytes": (swapped(3), ("kv", 3)),
    "indices of two axes": (mirrored, ("kv", 3)),
    "one byte": (flipped, ("kv", 7)),
    "one byte of a state": (state_flipped, ("state", 3)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_swapped_or_flipped_differs(name: str) -> None:
    change, where = CHANGES[name]
    other = change(content())
    assert {first_unlike(*both) for both in reads(content(), other)} - {None} == {where}
    sums = [whole(shape, other) for shape in SHAPES.values()]
    assert sums == [sums[0]] * len(sums)
    assert first_unlike(whole(SHAPES["one"], content()), sums[0]) == where


def test_a_sample_is_of_tokens_and_of_whole_states() -> None:
    sample = Sample(every=5, seed=3)
    chosen = set(sample.pick(np.arange(TOKENS), 1).tolist())
    assert 0 < len(chosen) < TOKENS // 2
    assert chosen != set(Sample(every=5, seed=4).pick(np.arange(TOKENS), 1).tolist())
    before = whole(SHAPES["one"], content(), sample)
    for token in range(TOKENS):
        k, s = content()
        k[1, 0, token, 0] ^= 1
        assert first_unlike(before, whole(SHAPES["copies"], (k, s), sample)) == (("kv", 7) if token in chosen else None)
    assert first_unlike(before, whole(SHAPES["copies"], state_flipped(content()), sample)) == ("state", 3)


def test_the_error_names_the_first_layer_and_both_digests() -> None:
    mine, theirs = {("a", 4): 1, ("b", 2): 2, ("a", 2): 3}, {("a", 4): 0, ("b", 2): 5, ("a", 2): 3}
    assert first_unlike(mine, theirs) == ("b", 2)
    with pytest.raises(
        ChecksumError, match=r"layer 2 of cache 'b' .* 0x0000000000000002 here, 0x0000000000000005 there"
    ):
        check(mine, theirs)
    with pytest.raises(ChecksumError, match="is none here, 0x0000000000000001 there"):
        check({}, {("a", 1): 1})
    check(mine, dict(reversed(mine.items())))


@pytest.mark.parametrize(
    ("tokens", "needs", "unit", "rows"),
    [
        ((3, 9), Needs(), 1, [3, 4, 5, 6, 7, 8]),
        ((3, 9), Needs(keep=2), 1, [7, 8]),
        ((3, 9), Needs(keep=2, sink=5), 1, [3, 4, 7, 8]),
        ((0, 9), Needs(chunk=4), 1, [8]),
        ((0, 8), Needs(chunk=4), 1, []),
        ((0, 8), Needs(chunk=4, sink=1), 1, [0]),
        ((3, 9), Needs(), 4, [0, 1]),
        ((4, 11), Needs(), 4, [1]),
        ((0, 12), Needs(keep=5, sink=1), 4, [0, 1, 2]),
        ((9, 9), Needs(), 1, []),
        ((2, 3), Needs(), 4, []),
    ],
)
def test_which_rows_are_needed(tokens: tuple[int, int], needs: Needs, unit: int, rows: list[int]) -> None:
    assert needed(tokens, needs, unit).tolist() == rows


def test_keys_of_an_axis_in_tiles_are_those_of_the_axis_in_one() -> None:
    """Indices 2 to 7, three tiles of two with the place in the tile outside; wanted are 3 to 5, or none."""
    group, held = Group("g", "state", 0, 0, 1, 0), {"head": (2, 8)}
    tiles = IndexDigit("head", 1, 2, 12), IndexDigit("head", 2, 3, 4)
    sheet, whole = LayerSheet(0, 0, 0, ()), (IndexDigit("head", 1, 6, 4),)
    tiled, plain = (TensorField("c", "t", group, 4, 0, held, (), digits, (sheet,)) for digits in (tiles, whole))
    want = {"head": (3, 6)}
    digits = [elements.cropped(field, sheet, want) for field in (tiled, plain)]
    assert digits == [(tiles[0], replace(tiles[1], count=2)), (replace(whole[0], at=1, count=3),)]
    mine, theirs = (elements.key_table(f, sheet, d or (), want, 2) for f, d in zip((tiled, plain), digits, strict=True))
    assert mine.reshape(2, 2, 2).transpose(1, 0, 2).reshape(4, 2)[1:].tolist() == theirs.reshape(3, 2).tolist()
    assert not mine[:2].any()
    assert elements.cropped(tiled, sheet, {"head": (0, 2)}) is None


def asked(**changed: object) -> tuple[Plan, Pool, Request]:
    shape = SHAPES["two, large blocks"]
    made, given = plan(shape, Shape(1)), tables(shape, 0)
    request = Request("r", (0, TOKENS), {**given, **changed}, {})  # type: ignore[dict-item]
    return made, pools(made.prefill, shape, given, content())[1], request


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (Blocks(0, np.array([0, 1])), r"holds positions \[0, 2\), asked for 0..3"),
        (Blocks(0, np.array([0, 1, -1, 3])), "no block at position 2"),
        (
            Blocks(0, np.array([0, 1, 2, BLOCKS])),
            f"kernel blocks from 0 to {2 * BLOCKS + 1}, the pool has {2 * BLOCKS}",
        ),
        (Slot(0, 0), "its table is a slot"),
    ],
)
def test_tables_that_do_not_hold_what_is_needed(table: object, text: str) -> None:
    made, pool, request = asked(kv=table)
    with pytest.raises(BadRequestError, match=text):
        of_read(made, 1, 0, "prefill", pool, request)


def test_what_does_not_fit_together_is_refused() -> None:
    made, pool, request = asked()
    with pytest.raises(RegisterError, match="is not that of worker 0"):
        of_read(made, 0, 0, "prefill", pool, request)
    with pytest.raises(RegisterError, match="is not that of worker 0 of 'd'"):
        of_read(made, 1, 0, "decode", pool, request)
    with pytest.raises(BadRequestError, match="neither prefill nor decode"):
        of_read(made, 1, 0, "both", pool, request)
    with pytest.raises(BadRequestError, match="group 'kv' is missing"):
        of_read(made, 1, 0, "prefill", pool, replace(request, prefill={}))
    with pytest.raises(BadRequestError, match="its table is of blocks"):
        of_read(
            made,
            1,
            0,
            "prefill",
            pool,
            replace(request, prefill={**request.prefill, "state": Blocks(0, np.array([2]))}),
        )
    with pytest.raises(BadRequestError, match="one token in 0"):
        Sample(every=0)


def test_a_side_that_does_not_say_what_it_holds_is_refused() -> None:
    shape = SHAPES["two, large blocks"]
    made = plan(shape, Shape(1))
    silent = tuple(replace(worker, holds=()) for worker in made.prefill.workers)
    made = replace(made, prefill=replace(made.prefill, workers=silent))
    pool = pools(made.prefill, shape, tables(shape, 0), content())[1]
    with pytest.raises(PlanFormatError, match=r"does not say what it holds of \['head'\] of 'kv'"):
        of_read(made, 1, 0, "prefill", pool, Request("r", (0, TOKENS), tables(shape, 0), {}))


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ((("head", 2, 40), ("row", 5, 8), ("dim", 4, 2)), "0 axes of tokens"),
        ((("head", 2, 40), ("token", 3, 8), ("dim", 4, 2)), "3 rows in a block of 5 tokens"),
        ((("head", 1, 40), ("token", 5, 8), ("dim", 4, 2)), "has 1 of axis 'head'"),
        ((("head", 2, 40), ("layer", 2, 8), ("token", 5, 8)), "it cannot be checked"),
    ],
)
def test_a_view_without_coordinates_is_refused(axes: tuple[tuple[str, int, int], ...], text: str) -> None:
    made, pool, request = asked()
    worker = made.prefill.workers[1]
    first = replace(worker.planes[0], views=(replace(worker.planes[0].views[0], axes=axes),))
    workers = made.prefill.workers[0], replace(worker, planes=(first, *worker.planes[1:]))
    odd = replace(made, prefill=replace(made.prefill, workers=workers))
    with pytest.raises(PlanFormatError, match=text):
        of_read(odd, 1, 0, "prefill", pool, request)


def test_halves_of_the_same_heads_are_refused() -> None:
    shape = SHAPES["two, large blocks"]
    made = plan(shape, Shape(1))
    second = replace(made.prefill.workers[1], holds=(("kv", "head", (1, 3)), ("state", "head", (1, 3))))
    odd = replace(made.prefill, workers=(made.prefill.workers[0], second))
    pool = pools(odd, shape, tables(shape, 0), content())[1]
    with pytest.raises(PlanFormatError, match="by two workers: it cannot be checked"):
        of_side(pool, tables(shape, 0), (0, TOKENS))
