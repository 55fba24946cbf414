"""The proof catches damage: every mutation of a right plan is refused, whatever the plan is of."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.prove import prove
from kvplan.compiler.route import placed
from kvplan.dsl.storage import parse_storage
from kvplan.runtime.plan import Loop, Nest, Plan, Read, Table

HEADS_OUT = "layer { block { head { token { k[dim] v[dim] } } } }"
TOKENS_OUT = "layer { block { token { head { k[dim] v[dim] } } } }"
PADDED = "layer { block { head { token { k[dim] pad(16) v[dim] } } align(512) } }"
STATE = "layer { block { x[head hd tap] b[group st tap] c[group st tap] ssm[head hd st] pad(64) } }"


def tokens_side(tp: int, storage: str = HEADS_OUT, kernel: int = 16) -> BoundSide:
    tensors = tuple(BoundTensor(n, (("head", 4), ("token", 0), ("dim", 8)), "bf16", 2, (("head", "tp"),)) for n in "kv")
    cache = BoundCache("kv", "test", "tokens", (0, 2, 3), tensors, parse_storage(storage), {}, kernel, None, False)
    return side(tp, cache, BoundGroup("kv", "tokens", tuple(("kv", n) for n in (0, 2, 3)), kernel, kernel, 1, 0))


def state_side(tp: int) -> BoundSide:
    part = (("group", "tp"),)
    tensors = (
        BoundTensor("x", (("head", 4), ("hd", 3), ("tap", 3)), "bf16", 2, (("head", "tp"),)),
        BoundTensor("b", (("group", 2), ("st", 5), ("tap", 3)), "bf16", 2, part),
        BoundTensor("c", (("group", 2), ("st", 5), ("tap", 3)), "bf16", 2, part),
        BoundTensor("ssm", (("head", 4), ("hd", 3), ("st", 5)), "f32", 4, (("head", "tp"),)),
    )
    cache = BoundCache("state", "test", "state", (0, 1), tensors, parse_storage(STATE), {}, 0, None, False)
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


def with_nest(plan: Plan, table: str, change: Callable[[Nest], Nest | None]) -> Plan:
    """The plan with the first nest of the first read of the last decode worker changed or dropped."""
    reads = list(plan.reads[-1])
    nests = list(getattr(reads[0].table, table))
    changed = change(nests[0])
    nests[:1] = [changed] if changed else []
    reads[0] = replace(reads[0], table=replace(reads[0].table, **{table: tuple(nests)}))
    return replace(plan, reads=(*plan.reads[:-1], tuple(reads)))


def moved(nest: Nest, prefill: int = 0, decode: int = 0) -> Nest:
    p, d = nest.prefill, nest.decode
    return replace(nest, prefill=(p[0], p[1] + prefill), decode=(d[0], d[1] + decode))


def fewer(nest: Nest) -> Nest | None:
    if not nest.loops:
        return None
    last = nest.loops[-1]
    return replace(nest, loops=(*nest.loops[:-1], replace(last, count=last.count - 1)))


def stepped(nest: Nest, by: int) -> Nest | None:
    if not nest.loops:
        return None
    last = nest.loops[-1]
    return replace(nest, loops=(*nest.loops[:-1], replace(last, prefill=(last.prefill[0], last.prefill[1] + by))))


NEST: dict[str, Callable[[Nest], Nest | None]] = {
    "drop a span": lambda nest: None,
    "shift the source": lambda nest: moved(nest, prefill=nest.bytes),
    "shift the source by an element": lambda nest: moved(nest, prefill=2),
    "shift the source by a byte": lambda nest: moved(nest, prefill=1),
    "shift the destination": lambda nest: moved(nest, decode=2),
    "shift both": lambda nest: moved(nest, 4, 4),
    "before the page": lambda nest: moved(nest, -4, -4),
    "shorten": lambda nest: replace(nest, bytes=nest.bytes - 2),
    "shorten by a byte": lambda nest: replace(nest, bytes=nest.bytes - 1),
    "lengthen": lambda nest: replace(nest, bytes=nest.bytes + 4),
    "one turn fewer": fewer,
    "wrong step": lambda nest: stepped(nest, 4),
    "wrong layer": lambda nest: replace(nest, prefill=(nest.prefill[0] + 1, nest.prefill[1])),
    "wrong plane": lambda nest: replace(nest, decode=(nest.decode[0] + 1, nest.decode[1])),
    "no such plane": lambda nest: replace(nest, prefill=(nest.prefill[0] + 99, nest.prefill[1])),
    "another tensor's name": lambda nest: replace(nest, tensors=("nobody",)),
    "an axis' name": lambda nest: replace(nest, loops=(Loop("nobody", 2, (0, 2), (0, 2)), *nest.loops)),
}


def cases() -> Iterator[tuple[str, str, str]]:
    for pair, (prefill, _) in PAIRS.items():
        tables = ["page"] if prefill.caches[0].store == "state" else ["page", "token"]
        for table in tables if pair != "unlike blocks" else ["token"]:
            for damage in NEST:
                yield pair, table, damage


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: compile_bound(*pair).plan for name, pair in PAIRS.items()}


def refused(name: str, plan: Plan) -> None:
    prefill, decode = PAIRS[name]
    with pytest.raises(ProofFailed):
        prove(plan, placed(prefill), placed(decode))


@pytest.mark.parametrize(("pair", "table", "damage"), list(cases()))
def test_a_damaged_nest_is_refused(plans: dict[str, Plan], pair: str, table: str, damage: str) -> None:
    before = plans[pair]
    after = with_nest(before, table, NEST[damage])
    assert after != before
    refused(pair, after)


def with_reads(plan: Plan, change: Callable[[tuple[Read, ...]], tuple[Read, ...]]) -> Plan:
    return replace(plan, reads=(*plan.reads[:-1], change(plan.reads[-1])))


READS: dict[str, Callable[[tuple[Read, ...]], tuple[Read, ...]]] = {
    "drop a read": lambda reads: reads[1:],
    "read twice": lambda reads: (*reads, reads[0]),
    "no such worker": lambda reads: (replace(reads[0], worker=99), *reads[1:]),
    "no such pair": lambda reads: (replace(reads[0], pair="nobody"), *reads[1:]),
    "an empty table": lambda reads: (replace(reads[0], table=Table()), *reads[1:]),
    "another interval": lambda reads: (replace(reads[0], holds=(("head", (7, 8)),)), *reads[1:]),
}


@pytest.mark.parametrize("damage", READS)
@pytest.mark.parametrize("pair", PAIRS)
def test_damaged_reads_are_refused(plans: dict[str, Plan], pair: str, damage: str) -> None:
    refused(pair, with_reads(plans[pair], READS[damage]))


@pytest.mark.parametrize("pair", ["heads 4 to 2", "state 4 to 1"])
def test_swapped_sources_are_refused(plans: dict[str, Plan], pair: str) -> None:
    def swap(reads: tuple[Read, ...]) -> tuple[Read, ...]:
        return (replace(reads[0], worker=reads[1].worker), replace(reads[1], worker=reads[0].worker), *reads[2:])

    refused(pair, with_reads(plans[pair], swap))


def test_a_worker_nobody_tells_is_refused(plans: dict[str, Plan]) -> None:
    plan = plans["copies 8 to 1"]
    assert plan.notify == ((1, 3, 5, 7),)
    refused("copies 8 to 1", replace(plan, notify=((1, 3, 5),)))


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


FRAME: dict[str, Callable[[Plan], Plan]] = {
    "everything skipped": lambda plan: replace(plan, skipped=("kv",), reads=((),) * len(plan.reads)),
    "another common page": lambda plan: replace(plan, pairs=(replace(plan.pairs[0], page=8),)),
    "no such worker told": lambda plan: replace(plan, notify=((99,), *plan.notify[1:])),
    "a reader told twice": lambda plan: replace(plan, notify=((plan.reads[0][0].worker,), *plan.notify[1:])),
    "another model": lambda plan: replace(plan, model_digest="0" * 32),
    "another key": lambda plan: replace(plan, prefill=replace(plan.prefill, key="tp=7")),
    "another side's digest": lambda plan: replace(plan, decode=replace(plan.decode, digest="0" * 32)),
    "other layers": lambda plan: with_reads(plan, lambda reads: (replace(reads[0], layers=(0,)), *reads[1:])),
    "other first planes": lambda plan: with_reads(plan, lambda reads: (replace(reads[0], first=(1, 0)), *reads[1:])),
    "a stray read": lambda plan: with_reads(plan, lambda reads: (*reads, replace(reads[0], cache="nobody"))),
}


@pytest.mark.parametrize("damage", FRAME)
@pytest.mark.parametrize("pair", ["heads 4 to 2", "copies 8 to 1"])
def test_a_damaged_frame_is_refused(plans: dict[str, Plan], pair: str, damage: str) -> None:
    refused(pair, FRAME[damage](plans[pair]))
