"""Prove one read of a plan: its fields are true, and its tables pair equal elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.placement.placed import PlacedSide
from kvplan.compiler.placement.shards import Interval, TokenShare, token_share
from kvplan.compiler.placement.tree import PlacedCache, relative, shape
from kvplan.compiler.prove.match import WrittenCoordinates, regions
from kvplan.plan.types import GroupPair, Plan, Read


@dataclass(frozen=True, slots=True)
class ProofContext:
    """A plan and the placements that judge it. `seen` caches what equal tables write into equal units.

    `pairs` are by name, `sources` the units of every prefill worker by (cache, group), `shares` the prefill workers'
    shares of a cache's tokens.
    """

    plan: Plan
    prefill: PlacedSide
    decode: PlacedSide
    pairs: Mapping[str, GroupPair]
    sources: tuple[Mapping[tuple[str, str], PlacedCache], ...]
    shares: Mapping[str, frozenset[TokenShare]]
    seen: dict[object, WrittenCoordinates] = field(default_factory=dict)

    def cache(self, name: str) -> BoundCache:
        return next(cache for cache in self.decode.side.caches if cache.name == name)

    def source_cache(self, name: str) -> BoundCache:
        return next(cache for cache in self.prefill.side.caches if cache.name == name)


def context(plan: Plan, prefill: PlacedSide, decode: PlacedSide) -> ProofContext:
    """Collect the tables that a proof looks up."""
    side = prefill.side
    once = {id(units): {(unit.cache, unit.group): unit for unit in units} for units in prefill.units}
    shares = {c.name: frozenset(token_share(side, c, worker) for worker in side.workers) for c in side.caches}
    pairs = {pair.name: pair for pair in plan.group_pairs}
    return ProofContext(plan, prefill, decode, pairs, tuple(once[id(units)] for units in prefill.units), shares)


def pair_of(case: ProofContext, read: Read) -> GroupPair:
    """Return the pair of groups that a read names. Raises ProofFailed (P006)."""
    pair = case.pairs.get(read.groups)
    if pair is None:
        raise ProofFailed("P006", f"a read names the pair {read.groups!r}, which the plan does not have")
    return pair


def group_of(case: ProofContext, read: Read) -> str:
    """Return the decode group that a read writes. Raises ProofFailed (P006)."""
    return pair_of(case, read).decode


def read_regions(case: ProofContext, number: int, unit: PlacedCache, read: Read) -> WrittenCoordinates:
    """Return the coordinates of `unit` that a read writes. Raises ProofFailed (P001, P005, P007, P013..P017)."""
    source = _source(case, number, unit, read)
    _check_holds(case, number, read)
    shift = _shift(case, number, read)
    there, here = relative(source, unit)
    ahead = read.first[0] - source.first, read.first[1] - unit.first
    key = (*shape(there, here), read.table, ahead, read.offset, str(shift))
    if key not in case.seen:
        tokens = {t.name: axis for t in case.cache(read.cache).tensors for axis, extent in t.axes if not extent}
        case.seen[key] = regions(replace(read, first=ahead).placed, there, here, shift, tokens)
    _check_layers(number, unit, read, case.seen[key])
    return case.seen[key]


def _source(case: ProofContext, number: int, unit: PlacedCache, read: Read) -> PlacedCache:
    """Return the unit that a read reads, by the worker and the planes that the read names."""
    who = f"decode worker {number} reads {read.groups!r} from worker {read.worker}"
    if not 0 <= read.worker < len(case.prefill.units):
        raise ProofFailed("P005", f"{who}, which does not exist")
    pair = pair_of(case, read)
    cache = case.cache(unit.cache)
    rows = {t.tokens_per_row for t in cache.tensors if t.name in _moved_tensors(read)}
    if pair.decode != unit.group or cache.needs != pair.needs or not rows <= {pair.rows}:
        raise ProofFailed("P006", f"{who}, a pair of groups that is read otherwise")
    source = case.sources[read.worker].get((unit.cache, pair.prefill))
    if source is None:
        raise ProofFailed("P005", f"{who}, which has none of it")
    ahead = read.first[0] - source.first, read.first[1] - unit.first
    if not (0 <= ahead[0] < source.planes and 0 <= ahead[1] < unit.planes) or min(read.offset) < 0:
        raise ProofFailed("P005", f"{who} from planes {read.first} and bytes {read.offset}, not its own")
    return source


def _moved_tensors(read: Read) -> set[str]:
    """Return the tensors that a read says it moves."""
    return {t for nests in (read.table.per_page, read.table.per_token) for nest in nests for t in nest.tensors}


def _overlap(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _check_holds(case: ProofContext, number: int, read: Read) -> None:
    """Check that the intervals a read names are the overlap of both workers' holdings of its tensors."""
    expected: dict[str, Interval] = {}
    for tensor in (t for t in case.cache(read.cache).tensors if t.name in _moved_tensors(read)):
        theirs = case.prefill.holds[read.worker][read.cache, tensor.name]
        ours = case.decode.holds[number][read.cache, tensor.name]
        expected |= {axis: _overlap(theirs[axis], ours[axis]) for axis, _ in tensor.split}
    if tuple(sorted(expected.items())) != read.holds:
        raise ProofFailed("P007", f"decode worker {number} from {read.worker}: says {read.holds}, holds {expected}")


def _shift(case: ProofContext, number: int, read: Read) -> dict[str, dict[str, int]]:
    """Return the decode coordinate minus the prefill coordinate of the same element, by tensor and axis."""
    found = {}
    for tensor in case.cache(read.cache).tensors:
        theirs = case.prefill.holds[read.worker][read.cache, tensor.name]
        ours = case.decode.holds[number][read.cache, tensor.name]
        found[tensor.name] = {axis: theirs[axis][0] - ours[axis][0] for axis in ours}
    return found


def _check_layers(number: int, unit: PlacedCache, read: Read, part: WrittenCoordinates) -> None:
    mask = 0
    for region in part.page + part.token:
        mask |= dict(region.axes)["layer"]
    moved = tuple(layer for i, layer in enumerate(unit.layers) if mask >> i & 1)
    if not moved or moved != read.layers:
        raise ProofFailed("P007", f"decode worker {number} from {read.worker}: says {read.layers}, moves {moved}")
