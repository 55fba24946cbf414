"""Route: from two placements to the reads of every decode worker, as the tables of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.coalesce import Gaps, coalesce, vacant
from kvplan.compiler.elect import RULES, Choice, classes, elect
from kvplan.compiler.errors import Refused
from kvplan.compiler.intersect import Range, Span, common, runs, spans
from kvplan.compiler.own import Interval, holding
from kvplan.compiler.place import PLANE, SHIFT, Digit, Spot, Unit, place, spots
from kvplan.compiler.relative import relative, shape
from kvplan.runtime.plan import Loop, Nest, Read, Table


@dataclass(frozen=True, slots=True)
class Placed:
    """A side with the units of every worker, and what it holds by (cache, tensor)."""

    side: BoundSide
    units: tuple[tuple[Unit, ...], ...]
    holds: tuple[Mapping[tuple[str, str], Mapping[str, Interval]], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One read to be: a unit of either worker, and the tensors read with the layers they share."""

    cache: BoundCache
    prefill: int
    decode: int
    from_unit: Unit
    to_unit: Unit
    layers: tuple[int, ...]
    tensors: tuple[BoundTensor, ...]


def placed(side: BoundSide) -> Placed:
    """A side with its workers placed; those that hold equally much of everything are placed once."""
    alike: dict[object, tuple[Unit, ...]] = {}
    units, holds = [], []
    for worker in side.workers:
        held = {(c.name, t.name): holding(side, t, worker) for c in side.caches for t in c.tensors}
        key = (worker.layers, tuple(stop - start for each in held.values() for start, stop in each.values()))
        if key not in alike:
            alike[key] = place(side, worker)
        units.append(alike[key])
        holds.append(held)
    return Placed(side, tuple(units), tuple(holds))


def elections(prefill: BoundSide, decode: BoundSide, rule: str) -> dict[tuple[str, str], list[Choice]]:
    """Who reads what from whom: choices by (cache, tensor), over the caches that both sides have."""
    theirs = {cache.name: cache for cache in prefill.caches}
    found = {}
    for cache in decode.caches:
        if cache.name not in theirs:
            continue
        for tensor, source in zip(cache.tensors, theirs[cache.name].tensors, strict=True):
            needs, holders = classes(decode, cache, tensor), classes(prefill, theirs[cache.name], source)
            found[cache.name, tensor.name] = [c for part in elect(RULES[rule], holders, needs).values() for c in part]
    return found


def reads(
    prefill: Placed, decode: Placed, chosen: Mapping[tuple[str, str], list[Choice]]
) -> tuple[tuple[Read, ...], ...]:
    """The reads of every decode worker, by group pair and prefill worker."""
    memo: dict[object, Table] = {}
    return tuple(
        tuple(_read(prefill, decode, job, memo) for job in _jobs(prefill, decode, chosen, worker.number))
        for worker in decode.side.workers
    )


def notified(count: int, chosen: Mapping[tuple[str, str], list[Choice]]) -> tuple[tuple[int, ...], ...]:
    """Per decode worker the prefill workers it only tells: those within its reach that nobody reads."""
    every = [choice for choices in chosen.values() for choice in choices]
    read = {choice.holder for choice in every}
    told: list[set[int]] = [set() for _ in range(count)]
    seen: set[int] = set(read)
    for choice in every:
        told[choice.reader] |= set(choice.told) - seen
        seen |= set(choice.told)
    return tuple(tuple(sorted(workers)) for workers in told)


def pair_name(from_unit: Unit, to_unit: Unit) -> str:
    return to_unit.group if from_unit.group == to_unit.group else f"{from_unit.group}>{to_unit.group}"


def _jobs(prefill: Placed, decode: Placed, chosen: Mapping[tuple[str, str], list[Choice]], reader: int) -> list[Job]:
    caches = {cache.name: cache for cache in decode.side.caches}
    jobs: dict[tuple[object, ...], list[BoundTensor]] = {}
    for to_unit in decode.units[reader]:
        for tensor in caches[to_unit.cache].tensors:
            mine = (c for c in chosen.get((to_unit.cache, tensor.name), ()) if c.reader == reader)
            for choice in mine:
                for from_unit in prefill.units[choice.holder]:
                    layers = _shared(from_unit, to_unit, choice.layers)
                    if layers:
                        jobs.setdefault((choice.holder, from_unit, to_unit, layers), []).append(tensor)
    order = sorted(jobs.items(), key=lambda job: (job[0][2].first, job[0][1].first, job[0][0], job[0][3]))  # type: ignore[attr-defined]
    return [
        Job(caches[to.cache], holder, reader, from_, to, layers, tuple(tensors))  # type: ignore[attr-defined, arg-type]
        for (holder, from_, to, layers), tensors in order
    ]


def _shared(from_unit: Unit, to_unit: Unit, layers: tuple[int, ...]) -> tuple[int, ...]:
    if from_unit.cache != to_unit.cache:
        return ()
    theirs, wanted = set(from_unit.layers), set(layers)
    return tuple(layer for layer in to_unit.layers if layer in theirs and layer in wanted)


def _read(prefill: Placed, decode: Placed, job: Job, memo: dict[object, Table]) -> Read:
    ranges: dict[str, dict[str, Range]] = {}
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
    pair = pair_name(job.from_unit, job.to_unit)
    return Read(job.prefill, pair, job.cache.name, job.layers, tuple(sorted(holds.items())), memo[key], first)


def _table(prefill: Placed, decode: Placed, job: Job, ranges: Mapping[str, Mapping[str, Range]]) -> Table:
    gaps = Gaps(vacant((job.from_unit,)), vacant((job.to_unit,)))
    pages = _page_tokens(prefill, job), _page_tokens(decode, job)
    stays = job.cache.store != "tokens"
    page = coalesce(_spans(job, ranges, pages[0]), gaps) if stays or pages[0] == pages[1] else ()
    token = () if stays else coalesce(_spans(job, ranges, None), gaps)
    return Table(tuple(_nest(s, job) for s in page), tuple(_nest(s, job) for s in token))


def _page_tokens(side: Placed, job: Job) -> int:
    return next(cache.kernel for cache in side.side.caches if cache.name == job.cache.name)


def _spans(job: Job, ranges: Mapping[str, Mapping[str, Range]], page: int | None) -> list[Span]:
    """Every tensor's nests: over whole pages of `page` tokens, or for one token with its step where `page` is None."""
    ours, theirs = spots(job.to_unit), spots(job.from_unit)
    found: list[Span] = []
    for tensor in job.tensors:
        p, d = theirs[tensor.name], ours[tensor.name]
        axes = {axis: [r] for axis, r in ranges[tensor.name].items()}
        axes["layer"] = runs(job.from_unit.layers, job.to_unit.layers, job.layers)
        token = next((axis for axis, extent in tensor.axes if not extent), None)
        if token is None:
            found += spans(p, d, axes, tensor.size)
        elif page is not None:
            found += spans(p, d, {**axes, token: [Range(0, 0, page // tensor.unit)]}, tensor.size)
        else:
            step = _token_step(p, token), _token_step(d, token)
            found += [_with_token(span, step) for span in spans(p, d, axes, tensor.size)]
    return found


def _with_token(span: Span, step: tuple[int, int]) -> Span:
    return Span(span.tensors, span.prefill, span.decode, span.bytes, span.loops, step)


def _token_step(spot: Spot, axis: str) -> int:
    digits: list[Digit] = [d for d in spot.digits if d.axis == axis]
    if len(digits) != 1:
        raise Refused(
            "C120",
            f"the {axis} axis of {spot.tensor!r} is tiled: one token further is not one step",
            "store tokens untiled on this side",
        )
    return digits[0].step


def _nest(span: Span, job: Job) -> Nest:
    order = [tensor.name for tensor in job.cache.tensors]
    loops = sorted(span.loops, key=lambda s: (-s.decode, -s.prefill, s.axis))
    return Nest(
        tuple(sorted(span.tensors, key=order.index)),
        _split(span.prefill),
        _split(span.decode),
        span.bytes,
        tuple(Loop(s.axis, s.count, _split(s.prefill), _split(s.decode)) for s in loops),
        span.token,
    )


def _split(at: int) -> tuple[int, int]:
    return at >> SHIFT, at & (PLANE - 1)
