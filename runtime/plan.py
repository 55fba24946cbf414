"""The types a plan is made of. Plans import this module and numpy, nothing else of kvplan.

Units: offsets, steps and sizes are bytes; a *step* or *origin* pair is (planes, bytes): how many planes of
the worker to move on, and how many bytes inside the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvplan.runtime.errors import BlockTableError, PlanFormatError

FORMAT = 1

Ints = npt.NDArray[np.int64]
Place = tuple[int, int]
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class View:
    """One tensor inside a page: `axes` are (name, count, step in bytes), outermost first; `offset` from the page."""

    tensor: str
    dtype: str
    offset: int
    axes: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes of one occurrence of `block` of one cache on one worker.

    `loops` are the loops outside `block`, outermost first: (axis, global indices, planes per step). Plane number
    = `first` + sum(index * step). A page has `page` bytes; pages of one plane lie `stride` bytes apart.
    """

    cache: str
    group: str
    part: str | None
    first: int
    loops: tuple[tuple[str, tuple[int, ...], int], ...]
    page: int
    stride: int
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one block table.

    `store` is tokens or state. A logical block holds `tokens` tokens of one worker in `ratio` kernel blocks of
    `kernel` tokens (0, 0 and 1 for a state, whose block is its slot). `shards` workers take turns of `chunk`
    tokens (context parallelism; 1 when the tokens are not shared out). Groups of one `arena` overlay the same
    memory: a block id belongs to one of them at a time.
    """

    name: str
    store: str
    tokens: int
    kernel: int
    ratio: int
    arena: int
    shards: int = 1
    chunk: int = 1


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: its planes, which share of the tokens it holds where tokens are shared out, and of every split axis.

    `holds` are (cache, axis, global interval).
    """

    planes: tuple[Planes, ...]
    shard: int = 0
    holds: tuple[tuple[str, str, Interval], ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One engine as the plan knows it: readable key, digest, groups, workers in the engine's order."""

    key: str
    digest: str
    groups: tuple[Group, ...]
    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`count` iterations over `axis`, each one `prefill` step further in prefill memory, `decode` in decode memory."""

    axis: str
    count: int
    prefill: Place
    decode: Place


@dataclass(frozen=True, slots=True)
class Nest:
    """Spans of `bytes` bytes that lie together on both sides, repeated by `loops`, outermost first.

    `prefill` and `decode` are (plane, counted from the read's first one, offset in the page). In a table of tokens
    `token` is how many bytes one token further lies, on either side; in a table of pages it is None.
    """

    tensors: tuple[str, ...]
    prefill: Place
    decode: Place
    bytes: int
    loops: tuple[Loop, ...] = ()
    token: Place | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """What is read for one block: `page` for a whole page against a whole page, `token` for one token of a run.

    `page` is empty where the two sides' pages hold unlike numbers of tokens; `token` is empty for states.
    """

    page: tuple[Nest, ...] = ()
    token: tuple[Nest, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """What one decode worker takes from prefill worker `worker` for the groups of `pair`.

    `holds` are the global intervals on the split axes that this read covers, `layers` the global layer numbers.
    The table counts planes from `first`, (plane of the prefill worker, plane of the decode worker), so that groups
    and workers that are alike share one.
    """

    worker: int
    pair: str
    cache: str
    layers: tuple[int, ...]
    holds: tuple[tuple[str, Interval], ...]
    table: Table
    first: Place = (0, 0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """One side's block table of a group: `ids[i]` holds block position `first + i`; -1 is a block that is not there."""

    first: int
    ids: Ints

    def at(self, position: Ints) -> Ints:
        """The block ids at `position`. Raises BlockTableError where the table has no block there."""
        index = position - self.first
        if index.size and (index.min() < 0 or index.max() >= self.ids.size):
            have = f"[{self.first}, {self.first + self.ids.size})"
            asked = f"{position.min()}..{position.max()}"
            raise BlockTableError(f"the block table holds positions {have}, asked for {asked}")
        found = self.ids[index]
        if found.size and found.min() < 0:
            raise BlockTableError(f"no block at position {position[found.argmin()]}, where tokens are needed")
        return found


class Runs(NamedTuple):
    """Runs of tokens that lie in one kernel block on either side; kernel block ids, token offsets in them, lengths."""

    prefill_block: Ints
    prefill_token: Ints
    decode_block: Ints
    decode_token: Ints
    count: Ints  # type: ignore[assignment]  # a tuple's own `count` is of no use here


Match = Callable[[int, int, Blocks, Blocks, int, int], Runs]


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefill group and a decode group with layers in common. `match` pairs their blocks for a range of tokens.

    `page` is the number of tokens in a page of both sides, 0 where they differ or there are none.
    """

    name: str
    prefill: str
    decode: str
    page: int
    match: Match


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything for one pair of sides. `reads` and `notify` have one entry per decode worker.

    `notify` names the prefill workers that a decode worker only tells that it is done; it tells those it reads
    from, too. `skipped` are optional caches that one side lacks.
    """

    format: int
    title: str
    model: str
    model_digest: str
    digest: str
    options: tuple[tuple[str, str], ...]
    prefill: Side
    decode: Side
    pairs: tuple[Pair, ...]
    reads: tuple[tuple[Read, ...], ...]
    notify: tuple[tuple[int, ...], ...]
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise PlanFormatError(f"plan format {self.format}, this runtime reads {FORMAT}: compile the plan again")


def cuts(first: int, end: int, *steps: int) -> tuple[Ints, Ints]:
    """Cut tokens [first, end) at every multiple of each step: (first token of each run, its length)."""
    edges = [np.arange(-(-(first + 1) // step) * step, end, step, dtype=np.int64) for step in steps]
    start = np.concatenate(([first], *edges)) if end > first else np.empty(0, np.int64)
    start = np.unique(start) if len(steps) > 1 else start
    return start, np.diff(start, append=end)


def slots(prefill: Blocks, decode: Blocks) -> Runs:
    """The one run of a state, its slot against its slot. Raises BlockTableError where a side has not exactly one."""
    for side, table in (("prefill", prefill), ("decode", decode)):
        if table.ids.size != 1 or table.ids[0] < 0:
            raise BlockTableError(f"a state has one slot on the {side} side, got {table.ids.tolist()}")
    zero = np.zeros(1, np.int64)
    return Runs(prefill.ids, zero, decode.ids, zero, zero + 1)
