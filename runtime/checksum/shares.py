"""What is summed on one worker: what a read covers, or what it is the lowest worker to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Interval, Pair, Plan, Read, Side
from kvplan.runtime.memory.coordinates import TensorField, fields


@dataclass(frozen=True, slots=True)
class TensorShare:
    """Layers of a tensor on one worker, and the part of it on every axis, by global index."""

    field: TensorField
    layers: frozenset[int]
    want: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class ChecksumLink:
    """A prefill worker and a decode worker of a plan, with all their tensors."""

    plan: Plan
    workers: tuple[int, int]
    fields: tuple[tuple[TensorField, ...], tuple[TensorField, ...]]


def link(plan: Plan, prefill_worker: int, decode_worker: int) -> ChecksumLink:
    """Raises PlanFormatError as `fields` does."""
    found = fields(plan.prefill, prefill_worker), fields(plan.decode, decode_worker)
    return ChecksumLink(plan, (prefill_worker, decode_worker), found)


def of_pair(met: ChecksumLink, read: Read, pair: Pair, prefill: bool) -> list[TensorShare]:
    """What a read covers, tensor by tensor: all that both workers hold, as either side says it.

    Raises PlanFormatError where the two sides and the read do not agree.
    """
    theirs, ours = (_moved(met, side, group, read) for side, group in enumerate((pair.prefill, pair.decode)))
    _check_said(met, read)
    mine, layers = theirs if prefill else ours, frozenset(read.layers)
    return [TensorShare(mine[name], layers, _want(read, pair, theirs[name], ours[name])) for name in sorted(ours)]


def elected(side: Side, worker: int) -> list[TensorShare]:
    """What a worker is the lowest one to hold. Raises PlanFormatError where two workers hold half of the same."""
    every = [fields(side, number) for number in range(worker + 1)]
    shard = [one.shard for one in side.workers]
    return [
        TensorShare(
            field,
            _left(field, [f for n in range(worker) for f in every[n] if _alike(f, field, shard[n], shard[worker])]),
            {},
        )
        for field in every[worker]
    ]


def _moved(met: ChecksumLink, side: int, group: str, read: Read) -> dict[str, TensorField]:
    """The fields of one of the two workers that a read moves, by tensor."""
    names = {name for nests in (read.table.page, read.table.token) for nest in nests for name in nest.tensors}
    mine = [f for f in met.fields[side] if (f.cache, f.group.name) == (read.cache, group)]
    found = {field.tensor: field for field in mine if field.tensor in names}
    for name in names:
        if name not in found or not found[name].layers.issuperset(read.layers):
            who = f"{('prefill', 'decode')[side]} worker {met.workers[side]}"
            said = f"{who} has not all layers {read.layers} of {name!r} of {read.cache!r} in group {group!r}"
            raise PlanFormatError(f"{said}, which a read names: compile the plan again")
    return found


def _check_said(met: ChecksumLink, read: Read) -> None:
    """Both workers say where they begin on the axes that are shared out; without it all would seem to begin at 0."""
    for side, number in zip((met.plan.prefill, met.plan.decode), met.workers, strict=True):
        said = {axis for cache, axis, _ in side.workers[number].holds if cache == read.cache}
        if missing := sorted({axis for axis, _ in read.holds} - said):
            text = f"worker {number} of {side.key!r} does not say what it holds of {missing} of {read.cache!r}"
            raise PlanFormatError(f"{text}: it cannot be checked")


def _want(read: Read, pair: Pair, theirs: TensorField, ours: TensorField) -> dict[str, Interval]:
    shape = [(field.size, field.tokens_per_row, sorted(field.held)) for field in (theirs, ours)]
    if shape[0] != shape[1] or ours.tokens_per_row not in (0, pair.rows):
        raise PlanFormatError(
            f"{ours.tensor!r} of {read.cache!r} is (bytes, tokens a row, axes) {shape[0]} and {shape[1]}"
        )
    found = {axis: _common(theirs.held[axis], ours.held[axis]) for axis in ours.held}
    said = dict(read.holds)
    for axis, common in found.items():
        if common != said.get(axis, ours.held[axis]):
            text = (
                f"a read of {ours.tensor!r} of {read.cache!r} takes {said.get(axis, ours.held[axis])} of axis {axis!r}"
            )
            raise PlanFormatError(f"{text}, its workers have {common} in common: it cannot be checked")
    return found


def _common(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _alike(one: TensorField, other: TensorField, shard: int, mine: int) -> bool:
    """Whether two fields are of one tensor, and of the same turn of its tokens."""
    return (one.cache, one.tensor) == (other.cache, other.tensor) and (other.group.shards == 1 or shard == mine)


def _left(field: TensorField, lower: Sequence[TensorField]) -> frozenset[int]:
    """The layers that none of some fields of lower workers has."""
    left = field.layers
    for other in lower:
        apart = any(low >= high for low, high in (_common(other.held[a], field.held[a]) for a in field.held))
        if not apart and other.layers & left and other.held != field.held:
            text = (
                f"{field.tensor!r} of {field.cache!r} is held {dict(other.held)} and {dict(field.held)} by two workers"
            )
            raise PlanFormatError(f"{text}: it cannot be checked")
        left = left if apart else left - other.layers
    return left
