"""Check that every number of a plan that is used as an index lies inside its range.

A plan's digests prove its origin, not that it is right: both engines may have one that was edited. Later code
does not check again what is checked here, once: workers, groups, planes, loops, and the bytes of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn, TypeVar

import numpy as np

from kvplan.plan import expand
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.needs import Needs
from kvplan.plan.spans import page_rows
from kvplan.plan.types import MEMORIES, Group, GroupPair, Ints, Nest, PageRange, Plan, Planes, Read, Side, Table

# The compiler's own limits: planes of a worker, and spans of a table.
MOST_PLANES, MOST_SPANS = 1 << 16, 1 << 24
STORES = ("state", "tokens")
# The index of a place's plane, and of its byte in a page.
PLANE, BYTE = 0, 1
# The turns of a loop, and the distance of each.
Step = tuple[int, int]
# The first plane, the loops that lead to other planes, and the bytes of a page, first and end.
Touched = tuple[int, Sequence[Step], int, int]
T = TypeVar("T")


def check_numbers(plan: Plan) -> None:
    """Raises PlanFormatError if a number of a plan leads out of its range."""
    try:
        _Numbers(plan).check()
    except OverflowError:
        _bad("a number has more than 64 bits")


@dataclass(slots=True)
class _Numbers:
    """The checks of one plan. An object that workers or reads share is checked once."""

    plan: Plan
    pages: dict[int, Ints] = field(default_factory=dict)
    fitting: set[tuple[object, ...]] = field(default_factory=set)

    def check(self) -> None:
        plan = self.plan
        for side in (plan.prefill, plan.decode):
            self._check_side(side)
        for pair in _named("pair", plan.group_pairs, lambda pair: pair.name).values():
            _check_pair(pair, self._groups(pair))
        if not len(plan.reads) == len(plan.notify) == len(plan.decode.workers):
            _bad(f"{len(plan.decode.workers)} decode workers have {len(plan.reads)} lists of reads")
        for notified in plan.notify:
            _check_within("a notified prefill worker", notified, len(plan.prefill.workers))
        for number, reads in enumerate(plan.reads):
            for read in reads:
                self._check_read(number, read)

    def _check_side(self, side: Side) -> None:
        groups = _named("group", side.groups, lambda group: group.name)
        shards = max((_checked_group(group).shards for group in side.groups), default=1)
        for _, needs in side.needs:
            _check_needs(needs)
        if not side.workers:
            _bad(f"side {side.key} has no workers")
        for worker in side.workers:
            # The shard is used only if some group's tokens are divided.
            if shards > 1:
                _check_within("a worker's shard of the tokens", (worker.shard,), shards)
            if id(worker.planes) not in self.pages:
                self.pages[id(worker.planes)] = _pages(worker.planes, groups)

    def _groups(self, pair: GroupPair) -> tuple[Group, Group]:
        named = ((self.plan.prefill, pair.prefill), (self.plan.decode, pair.decode))
        found = [next((group for group in side.groups if group.name == name), None) for side, name in named]
        if found[0] is None or found[1] is None:
            _bad(f"pair {pair.name} is of the groups {pair.prefill} and {pair.decode}, and a side lacks one")
        return found[0], found[1]

    def _check_read(self, number: int, read: Read) -> None:
        """Check that all that read `read` of decode worker `number` touches lies inside both workers' pages."""
        _check_within("a read's prefill worker", (read.worker,), len(self.plan.prefill.workers))
        pair = next((pair for pair in self.plan.group_pairs if pair.name == read.groups), None)
        if pair is None:
            _bad(f"a read is of the pair {read.groups}, and the plan lacks it")
        planes = self.plan.prefill.workers[read.worker].planes, self.plan.decode.workers[number].planes
        key = (id(read.table), pair.name, read.first, read.offset, *map(id, planes))
        if key in self.fitting:
            return
        rows = [page_rows(group, pair.rows) for group in self._groups(pair)]
        _check_table(read.table)
        for side in (0, 1):
            place = _Place(self.pages[id(planes[side])], read.first[side], read.offset[side], rows[side])
            for touched in _touched(read.table, side, place):
                place.check(*touched)
        self.fitting.add(key)


@dataclass(frozen=True, slots=True)
class _Place:
    """A worker's planes by page bytes, and the start of a read's table there; `rows` are the rows of a page."""

    pages: Ints
    first: int
    offset: int
    rows: int

    def check(self, plane: int, steps: Sequence[Step], low: int, high: int) -> None:
        """Raises PlanFormatError unless bytes [low, high) lie in the pages of the planes that loops lead to."""
        least, most = _reach(plane + self.first, steps)
        if least < 0 or most >= len(self.pages):
            _bad(f"planes {least} to {most} are moved, the worker has {len(self.pages)} planes, numbered from 0")
        page = int(self.pages[_reached(plane + self.first, steps)].min())
        if low + self.offset < 0 or high + self.offset > page:
            _bad(f"bytes {low + self.offset} to {high + self.offset} are moved of a page of {page} bytes")


def _touched(table: Table, side: int, place: _Place) -> Iterator[Touched]:
    """Yield what each part of a table touches on a side."""
    for nest in (*table.per_page, *table.per_token):
        yield from _touched_by(nest, side, place.rows if nest.token_step else 1)
    for part in (table.unpack, table.pack)[side]:
        yield part.plane, ((part.planes, part.step),), part.offset, part.offset + part.bytes


def _touched_by(nest: Nest, side: int, rows: int) -> Iterator[Touched]:
    steps = [(loop.count, (loop.prefill, loop.decode)[side]) for loop in nest.loops]
    start = (nest.prefill, nest.decode)[side]
    token = _tokens(nest, side, rows)
    if not any(step[PLANE] and step[BYTE] for _, step in steps):
        planes, inside = (tuple((count, step[n]) for count, step in steps if step[n]) for n in (PLANE, BYTE))
        low, high = _reach(start[BYTE], inside)
        yield start[PLANE], planes, low + token[0], high + token[1] + nest.bytes
        return
    # A step moves to another plane and another byte, so each span is checked by itself.
    for plane, byte in expand.expand((nest,))[:, 2 * side : 2 * side + 2].tolist():
        yield plane, (), byte + token[0], byte + token[1] + nest.bytes


def _reach(start: int, steps: Iterable[Step]) -> tuple[int, int]:
    """Return the least and the greatest number that loops of (count, step) lead to."""
    low = high = start
    for count, step in steps:
        reach = (count - 1) * step
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high


def _reached(start: int, steps: Iterable[Step]) -> Ints:
    """Return all numbers that loops of (count, step) lead to, in their order."""
    numbers = np.full(1, start, np.int64)
    for count, step in steps:
        numbers = (numbers[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    return numbers


def _tokens(nest: Nest, side: int, rows: int) -> tuple[int, int]:
    """Return the least and the greatest byte distance of a page's rows of tokens."""
    if nest.token_step is None:
        return 0, 0
    if not nest.hops:
        return _reach(0, [(rows, nest.token_step[side])])
    row = np.arange(rows, dtype=object)
    at = row * nest.token_step[side] + sum(row // hop[0] * hop[1 + side] for hop in nest.hops)
    return int(at.min()), int(at.max())


def _check_table(table: Table) -> None:
    if not table.per_page and not table.per_token:
        _bad("a read moves nothing")
    for nest in (*table.per_page, *table.per_token):
        _check_counts("bytes of a span", nest.bytes)
        _check_counts("turns of a loop", *(loop.count for loop in nest.loops))
        _check_counts("rows of a tile", *(hop[0] for hop in nest.hops))
    if any(nest.token_step or nest.hops for nest in table.per_page) or not all(
        nest.token_step for nest in table.per_token
    ):
        _bad("a table of pages has steps of tokens, or a table of tokens has none")
    if sum(prod(loop.count for loop in nest.loops) for nest in (*table.per_page, *table.per_token)) > MOST_SPANS:
        _bad(f"a table has more than {MOST_SPANS} spans")
    for part in (*table.unpack, *table.pack):
        _check_range(part)


def _check_range(part: PageRange) -> None:
    _check_counts("planes and bytes of a range of pages", part.planes, part.bytes)
    if part.planes > MOST_PLANES:
        _bad(f"a range of pages has more than {MOST_PLANES} planes")


def _check_pair(pair: GroupPair, groups: tuple[Group, Group]) -> None:
    _check_needs(pair.needs)
    _check_counts("tokens of a row", pair.rows)
    if groups[0].store != groups[1].store:
        _bad(f"pair {pair.name} is of a state and of tokens")
    if groups[0].store == "tokens" and any(group.kernel % pair.rows for group in groups):
        _bad(f"pair {pair.name} has rows of {pair.rows} tokens, which do not divide kernel blocks")
    rows = {page_rows(group, pair.rows) for group in groups}
    if pair.page_rows and {pair.page_rows} != rows:
        _bad(f"pair {pair.name} has pages of {pair.page_rows} rows, its groups of {sorted(rows)}")


def _checked_group(group: Group) -> Group:
    if group.store not in STORES:
        _bad(f"group {group.name} stores {group.store!r}")
    _check_counts(f"blocks, shards and chunk of group {group.name}", group.ratio, group.shards, group.chunk)
    if group.store == "tokens":
        _check_counts(f"tokens of a block of group {group.name}", group.kernel)
        if group.tokens != group.kernel * group.ratio:
            _bad(f"group {group.name} has {group.tokens} tokens in {group.ratio} blocks of {group.kernel}")
    if group.ring < 0:
        _bad(f"group {group.name} has a ring of {group.ring} tokens")
    return group


def _check_needs(needs: Needs) -> None:
    _check_counts("tokens of a whole block", needs.whole)
    if needs.chunk is not None:
        _check_counts("tokens of a chunk", needs.chunk)
    # A window of one token keeps no earlier ones.
    if (needs.keep or 0) < 0 or needs.sink < 0:
        _bad(f"the last {needs.keep} and the first {needs.sink} tokens are needed")


def _pages(entries: tuple[Planes, ...], groups: dict[str, Group]) -> Ints:
    """Return the page bytes of every plane of a worker. Its plane numbers must be 0 and up, each once."""
    counts = [prod(len(indices) for _, indices, _ in entry.loops) for entry in entries]
    total = sum(counts)
    if total > MOST_PLANES:
        _bad(f"a worker has more than {MOST_PLANES} planes")
    pages = np.zeros(total, np.int64)
    memories: dict[str, str] = {}
    for entry in entries:
        if entry.group not in groups:
            _bad(f"planes of {entry.cache} are of the group {entry.group}, and the side lacks it")
        if not 0 < entry.page_bytes <= entry.stride:
            _bad(f"pages of {entry.cache} have {entry.page_bytes} bytes, {entry.stride} bytes apart")
        if entry.memory not in ("", *MEMORIES):
            _bad(f"planes of {entry.cache} lie in the memory {entry.memory!r}, which is none of {', '.join(MEMORIES)}")
        if memories.setdefault(entry.group, entry.memory) != entry.memory:
            _bad(f"planes of the group {entry.group} lie in different memories")
        numbers = _plane_numbers(entry, total)
        if (pages[numbers] > 0).any() or len(np.unique(numbers)) < len(numbers):
            _bad(f"two planes of a worker have one number, one of them of {entry.cache}")
        pages[numbers] = entry.page_bytes
    return pages


def _plane_numbers(entry: Planes, total: int) -> Ints:
    steps = [(len(indices), step) for _, indices, step in entry.loops]
    low, high = _reach(entry.first, steps)
    if all(count for count, _ in steps):
        _check_within(f"a plane of {entry.cache}", (low, high), total)
    return _reached(entry.first, steps)


def _named(what: str, values: Iterable[T], name: Callable[[T], str]) -> dict[str, T]:
    """Return the values by name. Raises PlanFormatError if two have the same name."""
    given = list(values)
    found = {name(value): value for value in given}
    if len(found) < len(given):
        _bad(f"two values of a kind have one name: {what}")
    return found


def _check_within(what: str, numbers: Iterable[int], count: int) -> None:
    for number in numbers:
        if not 0 <= number < count:
            _bad(f"{what} is number {number}, of {count} that are counted from 0")


def _check_counts(what: str, *counts: int) -> None:
    for count in counts:
        if count < 1:
            _bad(f"{what}: {count}, and at least 1 is needed")


def _bad(why: str) -> NoReturn:
    raise PlanFormatError(f"{why}: compile the plan again")
