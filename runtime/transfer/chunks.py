"""Chunks of a request, by tokens or by tokens and layers. Together they move the same bytes as the whole request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kvplan.plan import layers as of_layers
from kvplan.plan import request as requests
from kvplan.plan.block_tables import Tables
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.errors import BadRequestError
from kvplan.plan.layers import Layers
from kvplan.plan.match import MatchRule
from kvplan.plan.request import Request
from kvplan.plan.types import CONTEXT, Interval, Plan, Read, Runs
from kvplan.runtime.transfer.demand import NOTHING, Demand, DemandRules
from kvplan.runtime.transfer.table_agreement import check_told


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [first, end) of a request, in all layers or in `layers`. No more come after the `last` one.

    `tables` are those of prefill groups after the chunk. For groups that they lack, the request's own tables are used,
    unless `only` is set. Caches that cannot be cut by tokens (states, rings, ranges of another length) move with the
    chunk of their layers that ends where the request does.
    """

    tokens: tuple[int, int]
    last: bool
    layers: Layers | None
    tables: Tables
    only: bool = False


def received(plan: Plan, request: Request, offered: Chunk, pools: Mapping[str, int], cover: ChunkCover) -> Chunk | None:
    """Return the part of an offered chunk that a request needs, checked and added to `cover`; None if it needs none.

    `pools` are prefill's blocks by group. Raises BadRequestError if it does not fit the request or earlier chunks;
    LeaseError if its blocks are not those that the request names.
    """
    needed = _needed(request, offered, cover)
    if needed is None:
        return None
    # Its tables have to fit even if nothing of it moves.
    end = needed.tokens[1]
    tables = requests.brought(plan, request, needed.tables, end, pools, final=end == request.tokens[1])
    chunk = replace(needed, tables=tables)
    check_told(request.id, request.prefill, tables)
    cover.add(chunk)
    return chunk


def check_opened(request: Request, opened: Interval | None) -> None:
    """Check that a request asks only for `opened` tokens; None allows any. Raises BadRequestError.

    It may begin later, behind a prefix that decode has, and end earlier, before tokens that decode computes.
    """
    if opened is not None and not opened[0] <= request.tokens[0] <= request.tokens[1] <= opened[1]:
        raise BadRequestError(f"request {request.id} was opened for {opened}, wanted are {request.tokens}")


def check_tiled(plan: Plan, request: Request, fed: Iterable[Chunk], worker: int) -> None:
    """Check that the chunks of prefill worker `worker` bring each part of a request once. Raises BadRequestError."""
    cover = ChunkCover(plan, request, worker)
    for offered in fed:
        if (needed := _needed(request, offered, cover)) is not None:
            cover.add(needed)


def _needed(request: Request, offered: Chunk, cover: ChunkCover) -> Chunk | None:
    """Return the part of an offered chunk that a request needs, None if it needs none. Raises BadRequestError.

    The request may need fewer tokens than were opened. If it has none, because decode has them all, it needs the chunks
    that end where it does: they bring the caches that cannot be cut by tokens. Its last chunk brings the layers that
    did not come, if any.
    """
    low, high = request.tokens
    first, end = (min(max(token, low), high) for token in requests.checked_range(offered.tokens))
    tokens, empty = (first, end), low == high
    ends = not empty or offered.tokens[1] == high
    if not (offered.last or (ends and (empty or first < end))):
        return None
    layers = offered.layers
    if empty and offered.last:
        layers = cover.missing(offered.layers) if ends else frozenset()
    return replace(offered, tokens=tokens, layers=layers)


def part(rules: DemandRules, request: Request, chunk: Chunk, prefill_worker: int | None = None) -> Demand:
    """Return what a checked chunk of a checked request moves to a decode worker, from `prefill_worker` or from all.

    Raises BadRequestError for tables that are missing or too short.
    """
    if request.whole_hit:
        return NOTHING
    asked = replace(request, prefill=chunk.tables if chunk.only else {**request.prefill, **chunk.tables})
    found: dict[tuple[str, int], Runs] = {}
    for key, reads in rules.reads.items():
        own = [read for read in reads if prefill_worker in (None, read.worker)]
        if own:
            moves = any(_touches(read, chunk) for read in own)
            found[key] = _runs(rules, key, asked, chunk) if moves else NO_RUNS
    return rules.demand_of(found)


def _touches(read: Read, chunk: Chunk) -> bool:
    return chunk.layers is None or not chunk.layers.isdisjoint(read.layers)


def _runs(rules: DemandRules, key: tuple[str, int], request: Request, chunk: Chunk) -> Runs:
    rule = rules.rules[key]
    first, end = chunk.tokens
    if _uncut(rule):
        ends = end == request.tokens[1] and (first < end or request.tokens[0] == request.tokens[1])
        return rules.runs(key, request) if ends else NO_RUNS
    # A row moves with the chunk in which it ends.
    first, end = (token // rule.rows * rule.rows for token in chunk.tokens)
    needed = rule.needs.ranges(*request.tokens, rule.rows)
    cut = [(max(start, first), min(stop, end)) for start, stop in needed]
    return rules.runs(key, request, [each for each in cut if each[0] < each[1]])


def _uncut(rule: MatchRule) -> bool:
    """Return whether a pair cannot be cut by tokens, because its runs do not follow those of the context."""
    theirs, ours = rule.prefill, rule.decode
    return ours.store == "state" or ours.length != CONTEXT or bool(theirs.ring or ours.ring)


def _said(tokens: Interval) -> str:
    return f"tokens [{tokens[0]}, {tokens[1]})"


class ChunkCover:
    """The tokens that have come, by layer. `worker` is the prefill worker that feeds, None for one that has all.

    Layers that nothing is read of from the worker may come, too, but need not.
    """

    def __init__(self, plan: Plan, request: Request, worker: int | None = None) -> None:
        self._request = request
        self._known, self._needed = of_layers.stored(plan, worker), of_layers.moved(plan, worker)
        self._came: dict[int, tuple[Interval, ...]] = {}
        self.ended = False

    def add(self, chunk: Chunk) -> None:
        """Add a chunk of the request. Raises BadRequestError, and adds nothing, if it does not fit earlier ones."""
        if self.ended:
            raise BadRequestError(f"{_said(chunk.tokens)} of request {self._request.id} came after the last chunk")
        layers = self._known if chunk.layers is None else chunk.layers
        if strange := layers - self._known:
            have = of_layers.text(self._known)
            raise BadRequestError(f"{of_layers.text(strange)} of a chunk are unknown: there are {have}")
        came = {**self._came, **self._added(chunk, layers)}
        if chunk.last:
            self._check_gaps(came)
        self._came, self.ended = came, chunk.last

    def missing(self, layers: Layers | None) -> Layers:
        """Return those of `layers`, or of all layers, that no chunk has covered."""
        return (self._known if layers is None else layers).difference(self._came)

    def _added(self, chunk: Chunk, layers: Layers) -> dict[int, tuple[Interval, ...]]:
        first, end = chunk.tokens
        if first == end and self._request.tokens[0] < self._request.tokens[1]:
            if not chunk.last:
                raise BadRequestError(f"{_said(chunk.tokens)} are none: only the last chunk may be empty")
            return {}
        return {layer: self._joined(layer, chunk.tokens) for layer in layers}

    def _joined(self, layer: int, new: Interval) -> tuple[Interval, ...]:
        before = self._came.get(layer, ())
        for one in before:
            if max(one[0], new[0]) < min(one[1], new[1]) or one == new:
                raise BadRequestError(f"layer {layer}: {_said(new)} of a chunk overlap {_said(one)}, which came before")
        found: list[Interval] = []
        for low, high in sorted([*before, new]):
            if found and found[-1][1] == low:
                low = found.pop()[0]
            found.append((low, high))
        return tuple(found)

    def _check_gaps(self, came: Mapping[int, tuple[Interval, ...]]) -> None:
        lacking = {layer for layer in self._needed if came.get(layer) != (self._request.tokens,)}
        if lacking:
            layer = min(lacking)
            have = ", ".join(_said(one) for one in came.get(layer, ())) or "none"
            text = f"the last chunk leaves gaps in {of_layers.text(lacking)}: of layer {layer} there are {have}"
            raise BadRequestError(f"{text}, the request has {_said(self._request.tokens)}")
