"""Check the frame of a plan: all fields beside its tables that a peer or a runtime relies on agree with the sides."""

from __future__ import annotations

from collections import Counter

from kvplan.compiler import digests as digest
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.compat import check_pair
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.options import DIRECT, MACHINE, OPTIONS
from kvplan.compiler.placement.holdings import classes, overlapping
from kvplan.compiler.placement.placed import PlacedSide
from kvplan.compiler.placement.sides import plan_side
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import Needs, Plan, Read, Side


def check_frame(plan: Plan, prefill: PlacedSide, decode: PlacedSide) -> None:
    """Check sides, digests, pairs, skipped caches. Raises ProofFailed (P002, P003, P006, P019)."""
    _check_options(plan)
    for name, said, truth in (("prefill", plan.prefill, prefill), ("decode", plan.decode, decode)):
        if _fields(said) != _fields(plan_side(truth)) or said.digest != digest.side(said):
            raise ProofFailed("P002", f"the plan's {name} side is not the side that was bound")
    if len(plan.reads) != len(decode.side.workers) or len(plan.notify) != len(decode.side.workers):
        raise ProofFailed("P003", f"reads for {len(plan.reads)} decode workers, there are {len(decode.side.workers)}")
    if plan.skipped != check_pair(prefill.side, decode.side):
        raise ProofFailed("P019", f"the plan skips {plan.skipped}")
    if {plan.model_digest} != {digest.model(one.side) for one in (prefill, decode)} or plan.model != decode.side.model:
        raise ProofFailed("P019", "the plan is of another model")
    found = [(pair.prefill, pair.decode, pair.page_rows, pair.needs, pair.rows) for pair in plan.group_pairs]
    named = {pair.name for pair in plan.group_pairs}
    if sorted(map(str, found)) != sorted(map(str, _pairs(prefill.side, decode.side))) or len(named) != len(found):
        raise ProofFailed("P006", f"the plan pairs {found}")


def _check_options(plan: Plan) -> None:
    """Check that every compile option occurs once with an allowed value (P019)."""
    given = dict(plan.options)
    machine = given.pop(MACHINE, "") and given.get("strategy") == DIRECT
    if len(dict(plan.options)) != len(plan.options) or given.keys() != OPTIONS.keys() or machine:
        raise ProofFailed("P019", f"the plan has options {plan.options}")
    if any(value not in OPTIONS[name] for name, value in given.items()):
        raise ProofFailed("P019", f"the plan has options {plan.options}")


def _fields(side: Side) -> tuple[object, ...]:
    return side.key, side.groups, side.workers, side.needs


def _pairs(prefill: BoundSide, decode: BoundSide) -> set[tuple[str, str, int, Needs, int]]:
    """Return groups, common page in rows, needs and tokens of a row: for every two groups with a layer in common,
    and for every tensor of it."""
    caches = {cache.name: cache for cache in decode.caches}
    theirs = grouped((member, group) for group in prefill.groups for member in group.members)
    met = {
        (there.name, ours.name, name): (there, ours)
        for ours in decode.groups
        for name, n in ours.members
        for there in theirs.get((name, n), ())
    }
    return {
        (there.name, ours.name, ours.kernel // t.tokens_per_row if ours.kernel == there.kernel else 0,
         caches[name].needs, t.tokens_per_row)
        for (_, _, name), (there, ours) in met.items()
        for t in caches[name].tensors
    }  # fmt: skip


def check_balance(plan: Plan, prefill: BoundSide, decode: BoundSide) -> None:
    """Check (P008) per tensor and interval that readers per holder, and a reader's layers per holder, are balanced."""
    for cache in (c for c in decode.caches if c.name not in plan.skipped):
        theirs = next(c for c in prefill.caches if c.name == cache.name)
        for tensor, source in zip(cache.tensors, theirs.tensors, strict=True):
            needs = classes(decode, cache, tensor)
            find = overlapping(needs)
            for what, holders in classes(prefill, theirs, source).items():
                readers = [n for need in find(what) for n in needs[need]]
                loads = [_layers(plan.reads[reader], set(holders), cache.name, tensor.name) for reader in readers]
                _check_loads(f"{tensor.name!r} of {cache.name!r}", holders, loads)
                if ("elect", "one") in plan.options and any(len(layers) > 1 for layers in loads):
                    raise ProofFailed("P008", f"{tensor.name!r} of {cache.name!r} is not read from one holder each")


def _layers(reads: tuple[Read, ...], holders: set[int], cache: str, tensor: str) -> Counter[int]:
    """Count the layers of a tensor that one reader takes from each holder."""
    found: Counter[int] = Counter()
    for read in reads:
        nests = read.table.per_page + read.table.per_token
        if read.worker in holders and read.cache == cache and any(tensor in nest.tensors for nest in nests):
            found[read.worker] += len(read.layers)
    return found


def _check_loads(what: str, holders: list[int], loads: list[Counter[int]]) -> None:
    readers = Counter(dict.fromkeys(holders, 0))
    for layers in loads:
        readers.update(layers.keys())
        if not layers or max(layers.values()) - min(layers.values()) > 1:
            raise ProofFailed("P008", f"{what}: one reader takes layers {dict(layers)} from its holders")
    if loads and max(readers.values()) - min(readers.values()) > 1:
        raise ProofFailed("P008", f"{what}: readers per holder {dict(readers)} are uneven")


def check_contract(plan: Plan, prefill: PlacedSide) -> None:
    """Check that every holder of data that moves is notified, by its readers or by one other worker (P009)."""
    read = {read.worker for reads in plan.reads for read in reads}
    notified = [worker for workers in plan.notify for worker in workers]
    moved = {cache.name for cache in prefill.side.caches} - set(plan.skipped)
    holding = {n for n in range(len(prefill.units)) if any(_holds(prefill, n, cache) for cache in moved)}
    if sorted(notified) != sorted(holding - read):
        raise ProofFailed(
            "P009", f"told only: {sorted(notified)}; held and not read by anyone: {sorted(holding - read)}"
        )
    if any(list(workers) != sorted(workers) for workers in plan.notify):
        raise ProofFailed("P009", "workers to tell are not in order")


def _holds(placed: PlacedSide, worker: int, cache: str) -> bool:
    """Whether a worker holds an element of a cache: some layers, and of some tensor no empty share of an axis."""
    tensors = [held for (name, _), held in placed.holds[worker].items() if name == cache]
    some = any(all(start < stop for start, stop in held.values()) for held in tensors)
    return some and any(unit.cache == cache for unit in placed.units[worker])
