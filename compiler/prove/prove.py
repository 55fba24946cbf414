"""Prove: check an emitted plan against the two placements, without enumerating bytes.

The proof says exactly this: every byte that both sides store and a decode worker needs is written once; each comes
from the same (layer, tensor, coordinate); no span leaves its page, pairs padding with data, begins or ends in it, or
cuts an element; a stage holds all bytes that go through it; readers are spread evenly over the holders of an
interval; every holder is notified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kvplan.compiler.bound import BoundCache, BoundTensor
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import PlacedSide
from kvplan.compiler.placement.shards import meet, token_share
from kvplan.compiler.placement.tree import PlacedCache
from kvplan.compiler.prove.cover import CoordinateSet, check_cover
from kvplan.compiler.prove.frame import check_balance, check_contract, check_frame
from kvplan.compiler.prove.match import WrittenCoordinates
from kvplan.compiler.prove.reads import ProofContext, context, group_of, read_regions
from kvplan.compiler.prove.stages import check_stages
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import Plan, Read


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a proof, as a sentence."""

    sentence: str


def prove(plan: Plan, prefill: PlacedSide, decode: PlacedSide) -> Proof:
    """Check all of it. Raises ProofFailed (P001..P022) with what is wrong and where."""
    check_frame(plan, prefill, decode)
    case = context(plan, prefill, decode)
    done: set[object] = set()
    for worker in decode.side.workers:
        into = grouped(((read.cache, group_of(case, read)), read) for read in plan.reads[worker.number])
        _check_strays(case, worker.number, into)
        for unit in decode.units[worker.number]:
            _check_unit(case, worker.number, unit, into.get((unit.cache, unit.group), []), done)
        for read in plan.reads[worker.number]:
            check_stages(plan, worker.number, read)
    check_balance(plan, prefill.side, decode.side)
    check_contract(plan, prefill)
    return Proof(claim(decode, plan.skipped))


def claim(decode: PlacedSide, skipped: tuple[str, ...] = ()) -> str:
    """Return what a proof of this decode side claims: bytes of each cache, with the axes that name an element."""
    caches = [cache for cache in decode.side.caches if cache.name not in skipped]
    said = "; ".join(f"{cache.name}: {len(cache.layers)} layers x {_sizes(cache)}" for cache in caches)
    return (
        f"Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. {said}."
    )


def _sizes(cache: BoundCache) -> str:
    """Return `583 B per row of 4 tokens, coordinates (layer, row, latent)`: of one layer, copies counted once."""
    sizes: dict[str, int] = {}
    axes: dict[str, None] = {"layer": None}
    for tensor in cache.tensors:
        n = tensor.tokens_per_row
        per = "state" if cache.store == "state" else "token" if n == 1 else f"row of {n:,} tokens"
        sizes[per] = sizes.get(per, 0) + tensor.size * prod(extent or 1 for _, extent in tensor.axes)
        axes |= dict.fromkeys(axis if extent or n == 1 else "row" for axis, extent in tensor.axes)
    each = " and ".join(f"{size:,} B per {per}" for per, size in sizes.items())
    return f"{each}, coordinates ({', '.join(axes)})"


def _check_strays(case: ProofContext, number: int, into: Mapping[tuple[str, str], list[Read]]) -> None:
    """Check that every read writes a unit that this worker has, so that the check of each unit misses none."""
    own = {(unit.cache, unit.group) for unit in case.decode.units[number] if unit.cache not in case.plan.skipped}
    for unit, (read, *_) in into.items():
        if unit not in own:
            what = f"{read.cache!r} of {read.groups!r}"
            raise ProofFailed("P005", f"decode worker {number} reads {what}, which it does not have")


def _check_unit(case: ProofContext, number: int, unit: PlacedCache, into: list[Read], done: set[object]) -> None:
    """Check that all reads `into` a unit cover it once, for every share of tokens that meets the worker's own."""
    if unit.cache in case.plan.skipped:
        return
    cache, theirs = case.cache(unit.cache), case.source_cache(unit.cache)
    shares: dict[object, list[Read]] = {}
    for read in into:
        source = case.prefill.side.workers[read.worker % len(case.prefill.side.workers)]
        shares.setdefault(token_share(case.prefill.side, theirs, source), []).append(read)
    turn = token_share(case.decode.side, cache, case.decode.side.workers[number])
    some = any(prod(_extents(case, number, unit, cache, tensor).values()) for tensor in cache.tensors)
    if shares.keys() != {share for share in case.shares[unit.cache] if some and meet(share, turn)}:
        raise ProofFailed("P004", f"decode worker {number}, {unit.cache}: not every share of the tokens is read")
    for reads in shares.values():
        parts = [read_regions(case, number, unit, read) for read in reads]
        key = (id(unit.parts), len(unit.layers), tuple(sorted(id(part) for part in parts)))
        if key not in done:
            _check_parts(case, number, unit, parts)
        done.add(key)


def _check_parts(case: ProofContext, number: int, unit: PlacedCache, parts: list[WrittenCoordinates]) -> None:
    """Check that all reads together write every tensor once: by page if pages are identical, and by token."""
    ours, theirs = case.cache(unit.cache), case.source_cache(unit.cache)
    if ours.store != "tokens" or ours.kernel == theirs.kernel:
        _check_tensors(case, number, unit, [region for part in parts for region in part.page], ours.kernel)
    if ours.store == "tokens":
        _check_tensors(case, number, unit, [region for part in parts for region in part.token], 0)


def _check_tensors(
    case: ProofContext, number: int, unit: PlacedCache, regions: list[CoordinateSet], tokens: int
) -> None:
    cache = case.cache(unit.cache)
    for tensor in cache.tensors:
        extents = _extents(case, number, unit, cache, tensor)
        extents |= {axis: tokens // tensor.tokens_per_row for axis, extent in tensor.axes if not extent and tokens}
        mine = [region for region in regions if region.tensor == tensor.name]
        check_cover(f"decode worker {number}, {unit.cache}", tensor.name, extents, mine)


def _extents(
    case: ProofContext, number: int, unit: PlacedCache, cache: BoundCache, tensor: BoundTensor
) -> dict[str, int]:
    held = case.decode.holds[number][cache.name, tensor.name]
    return {"layer": len(unit.layers), **{axis: stop - start for axis, (start, stop) in held.items()}}
