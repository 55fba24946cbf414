"""Reads: from two placements to the reads of every decode worker, as the tables of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.pair.coalesce import PaddingTests, coalesce, vacant
from kvplan.compiler.pair.elect import RULES, ReaderChoice, check_reads, check_whole, elect
from kvplan.compiler.pair.groups import GroupPairs
from kvplan.compiler.pair.intersect import AddressNest, CommonRange, common, law, runs, spans
from kvplan.compiler.placement.holdings import classes
from kvplan.compiler.placement.placed import PlacedSide
from kvplan.compiler.placement.shards import Interval
from kvplan.compiler.placement.tree import PLANE, SHIFT, PlacedCache, relative, shape, spots
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import GroupPair, Loop, Nest, Place, Read, Table


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """One read to plan: a unit of either worker, and the tensors with the layers that both have."""

    groups: GroupPair
    cache: BoundCache
    prefill: int
    decode: int
    from_unit: PlacedCache
    to_unit: PlacedCache
    layers: tuple[int, ...]
    tensors: tuple[BoundTensor, ...]


def elections(prefill: BoundSide, decode: BoundSide, rule: str) -> dict[tuple[str, str], list[ReaderChoice]]:
    """Elect the holder that each reader reads: choices by (cache, tensor), over the caches that both sides have.

    Raises Refused (C135) if the workers of a side together do not hold all of a cache.
    """
    theirs = {cache.name: cache for cache in prefill.caches}
    found = {}
    for cache in decode.caches:
        if cache.name not in theirs:
            continue
        for tensor, source in zip(cache.tensors, theirs[cache.name].tensors, strict=True):
            needs, holders = classes(decode, cache, tensor), classes(prefill, theirs[cache.name], source)
            check_whole("decode", cache, tensor, needs)
            check_whole("prefill", theirs[cache.name], source, holders)
            found[cache.name, tensor.name] = [c for part in elect(RULES[rule], holders, needs).values() for c in part]
    return found


def reads(
    prefill: PlacedSide, decode: PlacedSide, chosen: Mapping[tuple[str, str], list[ReaderChoice]], pairs: GroupPairs
) -> tuple[tuple[Read, ...], ...]:
    """Return the reads of every decode worker, by group pair and prefill worker."""
    memo: dict[object, Table] = {}
    every = _jobs(prefill, decode, chosen, pairs)
    found = [[_read(prefill, decode, job, memo) for job in every[worker.number]] for worker in decode.side.workers]
    shared = _shared_tables(read.table for each in found for read in each)
    return tuple(tuple(replace(read, **_by(read, shared[read.table])) for read in each) for each in found)


def _shared_tables(tables: Iterable[Table]) -> dict[Table, Table]:
    """Return the table to write for each. Planes count from the first one that a table moves. If several tables differ
    by an offset in the page, the one that begins at byte 0 stands for all."""
    first = {table: table.moved(*((-plane, 0) for plane, _ in _start(table))) for table in dict.fromkeys(tables)}
    alike = grouped((t.moved(*((0, -byte) for _, byte in _start(t))), t) for t in dict.fromkeys(first.values()))
    shared = {table: start if len(same) > 1 else table for start, same in alike.items() for table in same}
    return {table: shared[counted] for table, counted in first.items()}


def _start(table: Table) -> tuple[Place, Place]:
    """Return the least plane and the least byte of a table, on either side."""
    nests = (*table.per_page, *table.per_token)
    plane, byte = ([min(nest.prefill[i] for nest in nests), min(nest.decode[i] for nest in nests)] for i in (0, 1))
    return (plane[0], byte[0]), (plane[1], byte[1])


def _by(read: Read, table: Table) -> dict[str, Any]:
    """Return the changed fields of a read whose table is replaced by one that begins elsewhere."""
    (p, d), (to_p, to_d) = _start(read.table), _start(table)
    first = read.first[0] + p[0] - to_p[0], read.first[1] + d[0] - to_d[0]
    return {"table": table, "first": first, "offset": (p[1] - to_p[1], d[1] - to_d[1])}


def notified(count: int, chosen: Mapping[tuple[str, str], list[ReaderChoice]]) -> tuple[tuple[int, ...], ...]:
    """Return per decode worker the prefill workers that it only notifies: those in its reach that no worker reads."""
    every = [choice for choices in chosen.values() for choice in choices]
    read = {choice.holder for choice in every}
    only_notified: list[set[int]] = [set() for _ in range(count)]
    seen: set[int] = set(read)
    for choice in every:
        only_notified[choice.reader] |= set(choice.notified) - seen
        seen |= set(choice.notified)
    return tuple(tuple(sorted(workers)) for workers in only_notified)


def _jobs(
    prefill: PlacedSide, decode: PlacedSide, chosen: Mapping[tuple[str, str], list[ReaderChoice]], pairs: GroupPairs
) -> tuple[list[PlannedRead], ...]:
    """Return the reads of every decode worker, in the order of caches in its planes, then of prefill workers."""
    met = {(pair.prefill, pair.decode, *tensor): pair for pair, tensors in pairs.items() for tensor in tensors}
    caches = {cache.name: cache for cache in decode.side.caches}
    # Units are compared by identity: a worker has each once, and a comparison by value is slow.
    jobs: tuple[dict[tuple[int, int, int, tuple[int, ...], str], PlannedRead], ...] = tuple({} for _ in decode.units)
    count = 0
    for cache, tensor, choice, from_unit, to_unit, layers in _matches(prefill, decode, caches, chosen):
        meeting = met[from_unit.group, to_unit.group, cache.name, tensor.name]
        key = (choice.holder, id(from_unit), id(to_unit), layers, meeting.name)
        mine = jobs[choice.reader]
        count += key not in mine
        check_reads(count)
        job = mine.get(key) or PlannedRead(meeting, cache, choice.holder, choice.reader, from_unit, to_unit, layers, ())
        mine[key] = replace(job, tensors=(*job.tensors, tensor))
    return tuple(sorted(mine.values(), key=partial(_order, _begins(mine.values()))) for mine in jobs)


def _begins(jobs: Iterable[PlannedRead]) -> Mapping[str, int]:
    """Return the first plane of every cache."""
    begins: dict[str, int] = {}
    for job in jobs:
        begins[job.cache.name] = min(job.to_unit.first, begins.get(job.cache.name, job.to_unit.first))
    return begins


def _order(begins: Mapping[str, int], job: PlannedRead) -> tuple[object, ...]:
    planes = job.to_unit.first, job.from_unit.first
    return begins[job.cache.name], job.prefill, *planes, job.layers, job.groups.name


def _matches(
    prefill: PlacedSide,
    decode: PlacedSide,
    caches: Mapping[str, BoundCache],
    chosen: Mapping[tuple[str, str], list[ReaderChoice]],
) -> Iterator[tuple[BoundCache, BoundTensor, ReaderChoice, PlacedCache, PlacedCache, tuple[int, ...]]]:
    """Yield every choice of a tensor with the two units that have layers of it."""
    # Workers with equal layouts have the same units.
    once = {id(units): units for side in (prefill, decode) for units in side.units}
    placings = {number: _by_layer(units) for number, units in once.items()}
    for (name, tensor_name), choices in chosen.items():
        tensor = next(t for t in caches[name].tensors if t.name == tensor_name)
        for choice in choices:
            ours, theirs = decode.units[choice.reader], prefill.units[choice.holder]
            wanted = frozenset(choice.layers)
            places = [(name, layer) for layer in choice.layers]
            for to in _places(placings[id(ours)], places):
                own = [(name, layer) for layer in ours[to].layers if layer in wanted]
                for at in _places(placings[id(theirs)], own):
                    layers = _shared(theirs[at], ours[to], wanted)
                    yield caches[name], tensor, choice, theirs[at], ours[to], layers


def _by_layer(units: Sequence[PlacedCache]) -> Mapping[tuple[str, int], list[int]]:
    """Return the places of the units with a layer of a cache."""
    return grouped(((unit.cache, layer), place) for place, unit in enumerate(units) for layer in unit.layers)


def _places(by_layer: Mapping[tuple[str, int], list[int]], layers: Iterable[tuple[str, int]]) -> list[int]:
    """Return the places of all units with one of these layers, in order."""
    return sorted({place for layer in layers for place in by_layer.get(layer, ())})


def _shared(from_unit: PlacedCache, to_unit: PlacedCache, wanted: frozenset[int]) -> tuple[int, ...]:
    """Return the `wanted` layers that both units have, in the order of decode's unit."""
    held = wanted.intersection(from_unit.layers)
    return tuple(layer for layer in to_unit.layers if layer in held)


def _read(prefill: PlacedSide, decode: PlacedSide, job: PlannedRead, memo: dict[object, Table]) -> Read:
    ranges: dict[str, dict[str, CommonRange]] = {}
    holds: dict[str, Interval] = {}
    for tensor in job.tensors:
        mine = decode.holds[job.decode][job.cache.name, tensor.name]
        theirs = prefill.holds[job.prefill][job.cache.name, tensor.name]
        ranges[tensor.name] = {axis: common(theirs[axis], mine[axis]) for axis in mine}
        split = dict(tensor.split)
        holds |= {a: (max(theirs[a][0], b), min(theirs[a][1], e)) for a, (b, e) in mine.items() if a in split}
    from_unit, to_unit = relative(job.from_unit, job.to_unit)
    layers = tuple(job.to_unit.layers.index(layer) for layer in job.layers)
    key = (*shape(from_unit, to_unit), layers, tuple(t.name for t in job.tensors), str(ranges))
    if key not in memo:
        same = replace(job, from_unit=from_unit, to_unit=to_unit, layers=layers)
        memo[key] = _table(prefill, decode, same, ranges)
    first = job.from_unit.first, job.to_unit.first
    return Read(
        job.prefill, job.groups.name, job.cache.name, job.layers, tuple(sorted(holds.items())), memo[key], first
    )


def _table(
    prefill: PlacedSide, decode: PlacedSide, job: PlannedRead, ranges: Mapping[str, Mapping[str, CommonRange]]
) -> Table:
    gaps = PaddingTests(vacant(job.from_unit), vacant(job.to_unit))
    stays = job.cache.store != "tokens"
    page = coalesce(_spans(job, ranges, job.groups.page_rows), gaps) if stays or job.groups.page_rows else ()
    token = () if stays else coalesce(_spans(job, ranges, None), gaps)
    return Table(tuple(_nest(s, job) for s in page), tuple(_nest(s, job) for s in token))


def _spans(job: PlannedRead, ranges: Mapping[str, Mapping[str, CommonRange]], page: int | None) -> list[AddressNest]:
    """Return every tensor's nests: over whole pages of `page` rows, or if `page` is None for one row with its step."""
    ours, theirs = spots(job.to_unit), spots(job.from_unit)
    found: list[AddressNest] = []
    for tensor in job.tensors:
        p, d = theirs[tensor.name], ours[tensor.name]
        axes = {axis: [r] for axis, r in ranges[tensor.name].items()}
        axes["layer"] = runs(job.from_unit.layers, job.to_unit.layers, job.layers)
        token = next((axis for axis, extent in tensor.axes if not extent), None)
        if token is None:
            found += spans(p, d, axes, tensor.size)
        elif page is not None:
            found += spans(p, d, {**axes, token: [CommonRange(0, 0, page)]}, tensor.size)
        else:
            found += [replace(span, token=law(p, d, token)) for span in spans(p, d, axes, tensor.size)]
    return found


def _nest(span: AddressNest, job: PlannedRead) -> Nest:
    order = [tensor.name for tensor in job.cache.tensors]
    loops = sorted(span.loops, key=lambda s: (-s.decode, -s.prefill, s.axis))
    return Nest(
        tuple(sorted(span.tensors, key=order.index)),
        _split(span.prefill),
        _split(span.decode),
        span.bytes,
        tuple(Loop(s.axis, s.count, _split(s.prefill), _split(s.decode)) for s in loops),
        span.token.step if span.token else None,
        span.token.hops if span.token else (),
    )


def _split(at: int) -> tuple[int, int]:
    return at >> SHIFT, at & (PLANE - 1)
