"""A request fed in chunks of tokens, or of tokens and layers, which together move what the whole request moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from kvplan.plan import layers as of_layers
from kvplan.plan import request as requests
from kvplan.plan.block_tables import Tables, whole
from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.errors import BadRequestError
from kvplan.plan.layers import Layers
from kvplan.plan.match import MatchRule
from kvplan.plan.request import Request
from kvplan.plan.types import CONTEXT, Interval, Plan, Read, Runs
from kvplan.runtime.transfer.demand import NOTHING, Demand, DemandRules
from kvplan.runtime.transfer.table_agreement import check_told

MOST_LAYERS = 1 << 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [first, end) of a request, in all layers or in `layers`. After the `last` one no more come.

    `tables` are those of prefill groups as they stand after the chunk. With `only` they are all that there are,
    otherwise the request's own count for groups that they lack. What has no tokens to cut (states, rings, ranges of
    another length) moves with the chunk of its layers that ends where the request does.
    """

    tokens: tuple[int, int]
    last: bool
    layers: Layers | None
    tables: Tables
    only: bool = False


def check(plan: Plan, request: Request, chunk: Chunk, pools: Mapping[str, int]) -> Chunk:
    """The chunk with its numbers ints and its tables copied; `pools` are prefill's, by group. The request is checked.

    Raises BadRequestError where the chunk leaves the request, or a table does not fit.
    """
    tokens = requests.checked_range(chunk.tokens)
    check_inside(request, tokens)
    if not isinstance(chunk.last, bool):
        raise BadRequestError(f"whether a chunk is the last is true or false, not {type(chunk.last).__name__}")
    end = tokens[1]
    tables = requests.brought(plan, request, chunk.tables, end, pools, final=end == request.tokens[1])
    return Chunk(tokens, chunk.last, _layers(chunk.layers), tables, chunk.only)


def clipped(tokens: Interval, request: Interval) -> Interval:
    """What of a chunk lies in the tokens of a request, which may begin later and end earlier than what is opened."""
    first, end = (min(max(token, request[0]), request[1]) for token in tokens)
    return first, end


def received(plan: Plan, request: Request, offered: Chunk, pools: Mapping[str, int], cover: ChunkCover) -> Chunk | None:
    """What a request takes of a chunk that is offered: checked, and covered; None where that is nothing.

    Raises BadRequestError where it does not fit the request, or what came before, LeaseError where the request was told
    of other blocks.
    """
    taken = _taken(request, offered, cover)
    if taken is None:
        return None
    # What it names has to fit, also where nothing of it moves.
    chunk = replace(check(plan, request, replace(offered, tokens=taken.tokens), pools), layers=taken.layers)
    check_told(request.id, request.prefill, chunk.tables)
    cover.add(chunk)
    return chunk


def check_opened(request: Request, opened: Interval | None) -> None:
    """Raises BadRequestError if a request asks for tokens that prefill was not opened for; None allows any.

    It may begin later, behind a prefix that decode has, and end earlier, before tokens that decode computes.
    """
    if opened is not None and not opened[0] <= request.tokens[0] <= request.tokens[1] <= opened[1]:
        raise BadRequestError(f"request {request.id} was opened for {opened}, wanted are {request.tokens}")


def check_tiled(plan: Plan, request: Request, fed: Iterable[Chunk], worker: int) -> None:
    """Raises BadRequestError where chunks of prefill worker `worker` are not all of a request, each part once."""
    cover = ChunkCover(plan, request, worker)
    for offered in fed:
        if (taken := _taken(request, offered, cover)) is not None:
            cover.add(taken)


def _taken(request: Request, offered: Chunk, cover: ChunkCover) -> Chunk | None:
    """What lies in a request of a chunk that is offered, None where that is nothing.

    If a request has no tokens, as decode has them all, chunks count that end where it does: they bring what has no
    tokens to cut. A last one brings what did not come, or only the word that it is the last.
    """
    tokens, empty = clipped(offered.tokens, request.tokens), request.tokens[0] == request.tokens[1]
    ends = not empty or offered.tokens[1] == request.tokens[1]
    if not (offered.last or (ends and (empty or tokens[0] < tokens[1]))):
        return None
    layers = offered.layers
    if empty and offered.last:
        layers = cover.missing(offered.layers) if ends else frozenset()
    return replace(offered, tokens=tokens, layers=layers)


def part(rules: DemandRules, request: Request, chunk: Chunk, prefill_worker: int | None = None) -> Demand:
    """What a checked chunk of a checked request moves to a decode worker, from `prefill_worker` only if it is given.

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


def final(request: Request, chunk: Chunk) -> bool:
    """Whether a chunk is that of its layers with which all moves that has no tokens to cut."""
    first, end = chunk.tokens
    return end == request.tokens[1] and (first < end or request.tokens[0] == request.tokens[1])


def check_inside(request: Request, tokens: Interval) -> None:
    """Raises BadRequestError where a chunk leaves the request."""
    if not request.tokens[0] <= tokens[0] <= tokens[1] <= request.tokens[1]:
        raise BadRequestError(f"{_said(tokens)} of a chunk leave {_said(request.tokens)} of request {request.id}")


def _touches(read: Read, chunk: Chunk) -> bool:
    return chunk.layers is None or not chunk.layers.isdisjoint(read.layers)


def _runs(rules: DemandRules, key: tuple[str, int], request: Request, chunk: Chunk) -> Runs:
    rule = rules.rules[key]
    if _uncut(rule):
        return rules.runs(key, request) if final(request, chunk) else NO_RUNS
    # A row moves with the chunk in which it ends.
    first, end = (token // rule.rows * rule.rows for token in chunk.tokens)
    needed = rule.needs.ranges(*request.tokens, rule.rows)
    cut = [(max(start, first), min(stop, end)) for start, stop in needed]
    return rules.runs(key, request, [each for each in cut if each[0] < each[1]])


def _uncut(rule: MatchRule) -> bool:
    """Whether the runs of a pair do not follow the tokens of the context: they move whole."""
    theirs, ours = rule.prefill, rule.decode
    return ours.store == "state" or ours.length != CONTEXT or bool(theirs.ring or ours.ring)


def _layers(given: object) -> Layers | None:
    if given is None:
        return None
    if not isinstance(given, Set | tuple | list) or not 0 < len(given) <= MOST_LAYERS:
        raise BadRequestError("the layers of a chunk are a set of whole numbers, or None for all")
    return frozenset(whole(layer, "a layer") for layer in given)


def _said(tokens: Interval) -> str:
    return f"tokens [{tokens[0]}, {tokens[1]})"


class ChunkCover:
    """Which tokens of which layers have come. `worker` is the prefill worker that feeds, None for one that has all.

    The layers of which nothing is read from the worker may come, too, and need not.
    """

    def __init__(self, plan: Plan, request: Request, worker: int | None = None) -> None:
        self._request = request
        self._known, self._needed = of_layers.stored(plan, worker), of_layers.moved(plan, worker)
        self._came: dict[int, tuple[Interval, ...]] = {}
        self.ended = False

    def add(self, chunk: Chunk) -> None:
        """A chunk has come. Raises BadRequestError, and adds nothing, where it does not fit what came before."""
        if self.ended:
            raise BadRequestError(f"{_said(chunk.tokens)} of request {self._request.id} came after the last chunk")
        check_inside(self._request, chunk.tokens)
        layers = self._known if chunk.layers is None else chunk.layers
        if strange := layers - self._known:
            have = of_layers.text(self._known)
            raise BadRequestError(f"{of_layers.text(strange)} of a chunk are unknown: there are {have}")
        came = {**self._came, **self._added(chunk, layers)}
        if chunk.last:
            self._check_gaps(came)
        self._came, self.ended = came, chunk.last

    def missing(self, layers: Layers | None) -> Layers:
        """Those of `layers`, None for all, of which nothing has come."""
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
