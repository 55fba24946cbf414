"""The proof refuses a plan whose frame is not what was bound; test_mutants.py has damage to what is moved."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.random_sides.storage import storage as storage_of

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.prove.prove import claim, prove
from kvplan.plan.types import Loop, Nest, Plan, Read

HEADS_OUT = "layer { block { head { token { k[dim] v[dim] } } } }"
TOKENS_OUT = "layer { block { token { head { k[dim] v[dim] } } } }"
PADDED = "layer { block { head { token { k[dim] pad(16) v[dim] } } align(512) } }"
STATE = "layer { block { x[head hd tap] b[group st tap] c[group st tap] ssm[head hd st] pad(64) } }"


def tokens_side(tp: int, storage: str = HEADS_OUT, kernel: int = 16) -> BoundSide:
    tensors = tuple(BoundTensor(n, (("head", 4), ("token", 0), ("dim", 8)), "bf16", 2, (("head", "tp"),)) for n in "kv")
    cache = BoundCache("kv", "test", "tokens", (0, 2, 3), tensors, storage_of(storage), {}, kernel, None, False)
    return side(tp, cache, BoundGroup("kv", "tokens", tuple(("kv", n) for n in (0, 2, 3)), kernel, kernel, 1, 0))


def state_side(tp: int) -> BoundSide:
    part = (("group", "tp"),)
    tensors = (
        BoundTensor("x", (("head", 4), ("hd", 3), ("tap", 3)), "bf16", 2, (("head", "tp"),)),
        BoundTensor("b", (("group", 2), ("st", 5), ("tap", 3)), "bf16", 2, part),
        BoundTensor("c", (("group", 2), ("st", 5), ("tap", 3)), "bf16", 2, part),
        BoundTensor("ssm", (("head", 4), ("hd", 3), ("st", 5)), "f32", 4, (("head", "tp"),)),
    )
    cache = BoundCache("state", "test", "state", (0, 1), tensors, storage_of(STATE), {}, 0, None, False)
    return side(tp, cache, BoundGroup("state", "state", (("state", 0), ("state", 1)), 0, 0, 1, 0))


def side(tp: int, cache: BoundCache, group: BoundGroup) -> BoundSide:
    workers = tuple(BoundWorker(r, (("tp", r),), range(8)) for r in range(tp))
    return BoundSide(f"tp={tp}", "test", "test", (("tp", tp),), "consecutive", (cache,), (group,), workers)


PAIRS = {
    "heads 4 to 2": (tokens_side(4), tokens_side(2)),
    "heads 2 to 4": (tokens_side(2), tokens_side(4)),
    "copies 8 to 1": (tokens_side(8), tokens_side(1)),
    "orders": (tokens_side(2), tokens_side(1, TOKENS_OUT)),
    "padding": (tokens_side(2, PADDED), tokens_side(2, PADDED)),
    "unlike blocks": (tokens_side(2, kernel=48), tokens_side(1, kernel=32)),
    "state 4 to 1": (state_side(4), state_side(1)),
    "state 1 to 4": (state_side(1), state_side(4)),
    "state alike": (state_side(2), state_side(2)),
}


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: compile_bound(*pair).plan for name, pair in PAIRS.items()}


def refused(name: str, plan: Plan, code: str | None = None) -> None:
    prefill, decode = PAIRS[name]
    with pytest.raises(ProofFailed, match=code):
        prove(plan, placed(prefill), placed(decode))


def with_reads(plan: Plan, change: Callable[[tuple[Read, ...]], tuple[Read, ...]]) -> Plan:
    return replace(plan, reads=(*plan.reads[:-1], change(plan.reads[-1])))


@pytest.mark.parametrize("pair", ["heads 4 to 2", "state 4 to 1"])
def test_swapped_sources_are_refused(plans: dict[str, Plan], pair: str) -> None:
    def swap(reads: tuple[Read, ...]) -> tuple[Read, ...]:
        return (replace(reads[0], worker=reads[1].worker), replace(reads[1], worker=reads[0].worker), *reads[2:])

    refused(pair, with_reads(plans[pair], swap))


def test_a_worker_nobody_tells_is_refused(plans: dict[str, Plan]) -> None:
    plan = plans["copies 8 to 1"]
    assert plan.notify == ((1, 3, 5, 7),)
    refused("copies 8 to 1", replace(plan, notify=((1, 3, 5),)), "P009")


def test_workers_that_are_told_out_of_order_are_refused(plans: dict[str, Plan]) -> None:
    refused("copies 8 to 1", replace(plans["copies 8 to 1"], notify=((3, 1, 5, 7),)), "P009")


def test_uneven_readers_are_refused() -> None:
    prefill, decode = tokens_side(8), tokens_side(8)
    plan = compile_bound(prefill, decode).plan
    greedy = tuple(tuple(replace(read, worker=read.worker // 2 * 2) for read in reads) for reads in plan.reads)
    with pytest.raises(ProofFailed, match="P008"):
        prove(replace(plan, reads=greedy), placed(prefill), placed(decode))


def test_a_side_that_was_not_bound_is_refused(plans: dict[str, Plan]) -> None:
    plan = plans["heads 4 to 2"]
    planes = plan.decode.workers[0].planes[0]
    worker = replace(plan.decode.workers[0], planes=(replace(planes, stride=planes.stride + 1),))
    refused("heads 4 to 2", replace(plan, decode=replace(plan.decode, workers=(worker, *plan.decode.workers[1:]))))


def with_read(**fields: object) -> Callable[[Plan], Plan]:
    """The plan with other fields in the first read of its last decode worker."""
    return lambda plan: with_reads(plan, lambda reads: (replace(reads[0], **fields), *reads[1:]))  # type: ignore[arg-type]


FRAME: dict[str, tuple[str, Callable[[Plan], Plan]]] = {
    "everything skipped": ("P019", lambda plan: replace(plan, skipped=("kv",), reads=((),) * len(plan.reads))),
    "another common page": (
        "P006",
        lambda plan: replace(plan, group_pairs=(replace(plan.group_pairs[0], page_rows=8),)),
    ),
    "a pair twice": ("P006", lambda plan: replace(plan, group_pairs=(*plan.group_pairs, plan.group_pairs[0]))),
    "no such worker told": ("P009", lambda plan: replace(plan, notify=((99,), *plan.notify[1:]))),
    "a reader told twice": ("P009", lambda plan: replace(plan, notify=((plan.reads[0][0].worker,), *plan.notify[1:]))),
    "another model": ("P019", lambda plan: replace(plan, model_digest="0" * 32)),
    "another name of the model": ("P019", lambda plan: replace(plan, model="other")),
    "another key": ("P002", lambda plan: replace(plan, prefill=replace(plan.prefill, key="tp=7"))),
    "another side's digest": ("P002", lambda plan: replace(plan, decode=replace(plan.decode, digest="0" * 32))),
    "no reads of a worker": ("P003", lambda plan: replace(plan, reads=plan.reads[:-1])),
    "a worker too many to tell": ("P003", lambda plan: replace(plan, notify=(*plan.notify, ()))),
    "an option missing": ("P019", lambda plan: replace(plan, options=plan.options[1:])),
    "an option twice": ("P019", lambda plan: replace(plan, options=(*plan.options, plan.options[0]))),
    "an unknown option": ("P019", lambda plan: replace(plan, options=(*plan.options, ("mode", "fast")))),
    "an unknown value": ("P019", lambda plan: replace(plan, options=(("elect", "all"), *plan.options[1:]))),
    "a machine without a strategy": ("P019", lambda plan: replace(plan, options=(*plan.options, ("machine", "x")))),
    "other layers": ("P007", with_read(layers=(0,))),
    "other first planes": ("P015", with_read(first=(1, 0))),
    "a plane before prefill's": ("P005", with_read(first=(-1, 0))),
    "a plane after prefill's": ("P005", with_read(first=(3, 0))),
    "a plane before decode's": ("P005", with_read(first=(0, -1))),
    "a plane after decode's": ("P005", with_read(first=(0, 3))),
    "a byte before prefill's": ("P005", with_read(offset=(-1, 0))),
    "a byte before decode's": ("P005", with_read(offset=(0, -1))),
    "a worker before the first": ("P005", with_read(worker=-1)),
    "a worker after the last": ("P005", lambda plan: with_read(worker=len(plan.prefill.workers))(plan)),
    "another pair": ("P006", with_read(groups="nobody")),
    "a stray read": ("P005", lambda plan: with_reads(plan, lambda reads: (*reads, replace(reads[0], cache="nobody")))),
}


@pytest.mark.parametrize("damage", FRAME)
@pytest.mark.parametrize("pair", ["heads 4 to 2", "copies 8 to 1"])
def test_a_damaged_frame_is_refused(plans: dict[str, Plan], pair: str, damage: str) -> None:
    code, change = FRAME[damage]
    refused(pair, change(plans[pair]), code)


@pytest.mark.parametrize("pair", ["heads 4 to 2", "state 4 to 1"])
def test_a_loop_that_runs_backwards_is_refused(plans: dict[str, Plan], pair: str) -> None:
    plan, sides = plans[pair], PAIRS[pair]
    read = plan.reads[-1][0]
    nest = next(nest for nest in read.table.per_page if nest.loops)
    table = replace(
        read.table, per_page=tuple(backwards(nest) if each is nest else each for each in read.table.per_page)
    )
    turned = with_reads(plan, lambda reads: (replace(reads[0], table=table), *reads[1:]))
    with pytest.raises(ProofFailed, match=r"P013.*backwards"):
        prove(turned, placed(sides[0]), placed(sides[1]))


def backwards(nest: Nest) -> Nest:
    """The same spans, the last of the first loop first."""
    loop, last = nest.loops[0], nest.loops[0].count - 1
    (p, p_byte), (d, d_byte) = nest.prefill, nest.decode
    return replace(
        nest,
        prefill=(p + last * loop.prefill[0], p_byte + last * loop.prefill[1]),
        decode=(d + last * loop.decode[0], d_byte + last * loop.decode[1]),
        loops=(
            Loop(loop.axis, loop.count, (-loop.prefill[0], -loop.prefill[1]), (-loop.decode[0], -loop.decode[1])),
            *nest.loops[1:],
        ),
    )


def test_every_layer_of_loops_over_a_list_that_is_not_regular_is_looked_at() -> None:
    """Prefill lists layer 9 where layer 4 would be: in the middle of two loops over what looks like 3 x 3 layers."""
    odd = (0, 1, 2, 3, 9, 5, 6, 7, 8, 4)
    prefill, decode = layered(odd), layered(tuple(range(10)))
    plan = compile_bound(prefill, decode).plan
    (read,) = plan.reads[0]
    nest = read.table.per_page[0]
    square = replace(nest, loops=(Loop("layer", 3, (3, 0), (3, 0)), Loop("layer", 3, (1, 0), (1, 0))))
    last = replace(nest, prefill=(4, 0), decode=(9, 0), loops=())
    table = replace(read.table, per_page=(square, last))
    with pytest.raises(ProofFailed, match="P015"):
        prove(with_reads(plan, lambda reads: (replace(reads[0], table=table),)), placed(prefill), placed(decode))


def layered(layers: tuple[int, ...]) -> BoundSide:
    """One worker whose group has its layers in that order."""
    one = tokens_side(1)
    made = replace(one.caches[0], layers=tuple(sorted(layers)))
    members = tuple(("kv", layer) for layer in layers)
    workers = (replace(one.workers[0], layers=range(10)),)
    return replace(one, caches=(made,), groups=(replace(one.groups[0], members=members),), workers=workers)


def in_pages(layers: tuple[int, ...]) -> BoundSide:
    """The same, with all layers of a block in one page."""
    one = layered(layers)
    storage = storage_of("block { layer { head { token { k[dim] v[dim] } } } }")
    return replace(one, caches=(replace(one.caches[0], storage=storage),))


def with_table(plan: Plan, page: tuple[Nest, ...] = (), token: tuple[Nest, ...] = ()) -> Plan:
    """The plan of one reader with other nests in its only read."""
    ((read,),) = plan.reads
    table = replace(read.table, per_page=page or read.table.per_page, per_token=token or read.table.per_token)
    return replace(plan, reads=((replace(read, table=table),),))


def test_a_span_over_layers_that_lie_in_another_order_is_refused() -> None:
    prefill, decode = in_pages((0, 2, 1, 3)), in_pages((0, 1, 2, 3))
    plan = compile_bound(prefill, decode).plan
    nest = plan.reads[0][0].table.per_page[0]
    whole = replace(nest, prefill=(0, 0), decode=(0, 0), bytes=4 * nest.bytes, loops=())
    with pytest.raises(ProofFailed, match=r"P015.*layers"):
        prove(with_table(plan, page=(whole,)), placed(prefill), placed(decode))


def bytewise(storage: str) -> BoundSide:
    """One worker with a cache of elements of one byte."""
    tensors = (BoundTensor("k", (("head", 4), ("token", 0), ("dim", 1)), "fp8", 1, (("head", "tp"),)),)
    one = tokens_side(1)
    return replace(one, caches=(replace(one.caches[0], tensors=tensors, storage=storage_of(storage)),))


def test_spans_of_one_byte_are_proved() -> None:
    prefill = bytewise("layer { block { head { token { k[dim] } } } }")
    decode = bytewise("layer { block { token { head { k[dim] } } } }")
    plan = compile_bound(prefill, decode).plan
    assert [nest.bytes for nest in plan.reads[0][0].table.per_page] == [1]
    prove(plan, placed(prefill), placed(decode))


NESTS: dict[str, Callable[[Nest], Nest]] = {
    "a loop of one turn": lambda nest: replace(nest, loops=(*nest.loops, Loop("head", 1, (0, 64), (0, 64)))),
    "no token step": lambda nest: replace(nest, token_step=None),
    "a hop of no rows": lambda nest: replace(nest, hops=((0, 0, 0),)),
}


@pytest.mark.parametrize("damage", NESTS)
def test_a_damaged_nest_of_a_page_of_one_row_is_refused(damage: str) -> None:
    """Nothing but the nest itself shows it: with one row in a page no step is taken."""
    sides = tokens_side(1, kernel=1), tokens_side(1, kernel=1)
    plan = compile_bound(*sides).plan
    token = tuple(NESTS[damage](nest) for nest in plan.reads[0][0].table.per_token)
    with pytest.raises(ProofFailed, match="P013"):
        prove(with_table(plan, token=token), *map(placed, sides))


def test_a_proof_says_what_it_proved() -> None:
    """Bytes of one layer, copies counted once, whatever a worker holds of it."""
    begin = "Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. "
    assert (
        claim(placed(tokens_side(2)))
        == f"{begin}kv: 3 layers x 128 B per token, coordinates (layer, head, token, dim)."
    )
    assert claim(placed(tokens_side(2)), ("kv",)) == f"{begin}."
    axes = "layer, head, hd, tap, group, st"
    assert claim(placed(state_side(2))) == f"{begin}state: 2 layers x 432 B per state, coordinates ({axes})."


def test_a_layer_that_a_worker_does_not_have_is_not_taken_for_its_first() -> None:
    """Decode's first stage of a pipeline has layer 0 alone; the plan says 0 and moves layer 2 of prefill there."""
    prefill = tokens_side(1)
    stages = tuple(BoundWorker(n, (("tp", 0), ("pp", n)), held) for n, held in enumerate((range(2), range(2, 8))))
    decode = replace(prefill, sizes=(("tp", 1), ("pp", 2)), workers=stages)
    plan = compile_bound(prefill, decode).plan
    (read,), rest = plan.reads
    page, token = (
        tuple(replace(nest, prefill=(1, nest.prefill[1])) for nest in nests)
        for nests in (read.table.per_page, read.table.per_token)
    )
    assert read.layers == (0,)
    moved = replace(read, table=replace(read.table, per_page=page, per_token=token))
    with pytest.raises(ProofFailed, match="P015"):
        prove(replace(plan, reads=((moved,), rest)), placed(prefill), placed(decode))
