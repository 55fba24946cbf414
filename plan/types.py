"""The types of a plan. Plans import this module, nothing else of kvplan.

Units: offsets, steps and sizes are bytes; a *step* or *origin* pair is (planes, bytes): the number of planes of
the worker to move on, and the number of bytes inside the page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvplan.plan.blocks import Blocks, Ints, Runs
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.needs import ALL, Needs

__all__ = [
    "ALL",
    "CONTEXT",
    "FORMAT",
    "MEMORIES",
    "Blocks",
    "Group",
    "GroupPair",
    "Interval",
    "Ints",
    "Loop",
    "Needs",
    "Nest",
    "PageRange",
    "Place",
    "Plan",
    "Planes",
    "Read",
    "Runs",
    "Side",
    "Table",
    "View",
    "Worker",
]  # fmt: skip

FORMAT = 3
CONTEXT = "context"
# The memory of a cache's blocks: the host's, a device's, or both, with the first blocks of a pool in the
# first-named one.
MEMORIES = ("host", "device", "device+host", "host+device")

Place = tuple[int, int]
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class View:
    """One tensor inside a page: `axes` are (name, count, step in bytes), outermost first; `offset` from the page."""

    tensor: str
    dtype: str
    offset: int = 0
    axes: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes of one occurrence of `block` of one cache on one worker.

    `loops` are the loops outside `block`, outermost first: (axis, global indices, planes per step). Plane number
    = `first` + sum(index * step). A page has `page_bytes`; pages of one plane lie `stride` bytes apart, by default
    `page_bytes`. `layers` are the global layers inside a page, empty if each has planes of its own. A group with
    the name of its cache may be left out. `memory` is one of MEMORIES if the side declares it.
    """

    cache: str
    group: str = ""
    part: str | None = None
    first: int = 0
    loops: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    page_bytes: int = 0
    stride: int = 0
    views: tuple[View, ...] = ()
    layers: tuple[int, ...] = ()
    memory: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", self.group or self.cache)
        object.__setattr__(self, "stride", self.stride or self.page_bytes)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one block table.

    `store` is tokens or state. A logical block holds `tokens` tokens of one worker in `ratio` kernel blocks of
    `kernel` tokens (0, 0 and 1 for a state, whose block is its slot). `shards` workers take turns of `chunk`
    tokens (context parallelism; 1 if tokens are not divided). Groups of one `arena` overlay the same memory: a block
    id belongs to one of them at a time. `length` names the range of a request that counts here: context, or a range
    of its own, such as a cross attention's. A `ring` has blocks for `ring` tokens and keeps the last ones, token t in
    the place of token t % ring (0: every token has a place of its own). The groups of one `table` name parts of one
    table of the engine: they may have the same ids, and do not overlay each other.
    """

    name: str
    store: str
    tokens: int = 0
    kernel: int = 0
    ratio: int = 1
    arena: int = 0
    shards: int = 1
    chunk: int = 1
    length: str = CONTEXT
    ring: int = 0
    table: str = ""

    def overlays(self, other: Group) -> bool:
        """Whether a block id belongs to only one of both at a time."""
        return self.arena == other.arena and (self.table or self.name) != (other.table or other.name)


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: its planes, its share of the tokens if they are divided, and its interval of every split axis.

    `holds` are (cache, axis, global interval).
    """

    planes: tuple[Planes, ...]
    shard: int = 0
    holds: tuple[tuple[str, str, Interval], ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One engine in a plan: readable key, digest, groups, workers in the engine's order.

    `needs` has, by cache, the tokens that a reader needs and the engine keeps, if these are not all.
    """

    key: str
    digest: str
    groups: tuple[Group, ...]
    workers: tuple[Worker, ...]
    needs: tuple[tuple[str, Needs], ...] = ()

    def sharing(self, group: Group) -> tuple[str, ...]:
        """The names of `group` and of those that overlay it; its own alone if none does."""
        return tuple(other.name for other in self.groups if other is group or other.overlays(group))


@dataclass(frozen=True, slots=True)
class Loop:
    """`count` iterations over `axis`, each one `prefill` step further in prefill memory, `decode` in decode memory."""

    axis: str
    count: int
    prefill: Place
    decode: Place


@dataclass(frozen=True, slots=True)
class Nest:
    """Spans of `bytes` bytes, contiguous on both sides, repeated by `loops`, outermost first.

    `prefill` and `decode` are (plane, counted from the read's first one, offset in the page). In `per_token` of a table
    `token_step` is the bytes to the next row of tokens on either side; in `per_page` it is None. If tokens are stored
    in tiles, `hops` are (rows, prefill bytes, decode bytes): after every `rows` rows of the page, that many bytes are
    added to the distance.
    """

    tensors: tuple[str, ...]
    prefill: Place = (0, 0)
    decode: Place = (0, 0)
    bytes: int = 0
    loops: tuple[Loop, ...] = ()
    token_step: Place | None = None
    hops: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PageRange:
    """`bytes` bytes from `offset` of one page of each of `planes` planes, `step` apart, the first of them `plane`.

    Planes count from the read's first one, offsets as those of its table.
    """

    plane: int = 0
    offset: int = 0
    bytes: int = 0
    planes: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """The nests that a read copies for one block: `per_page` for whole pages, `per_token` for one token of a run.

    `per_page` is empty if the two sides' pages hold different numbers of tokens; `per_token` is empty for states.

    If that costs less, bytes go through a stage, a buffer with an image of one side's pages: their ranges, one after
    the other. With `unpack` (ranges of prefill pages) the ranges travel as they lie, and decode copies from the image
    by the table. With `pack` (ranges of decode pages) prefill copies into the image by the table, and the image
    travels. With both, pull uses `unpack` and push uses `pack`: the side that posts owns the buffer. Every nest lies in
    one range; those of `pack` are filled to the last byte. Empty: spans go straight to their place.
    """

    per_page: tuple[Nest, ...] = ()
    per_token: tuple[Nest, ...] = ()
    unpack: tuple[PageRange, ...] = ()
    pack: tuple[PageRange, ...] = ()

    def moved(self, prefill: Place, decode: Place) -> Table:
        """Return the same spans, moved by (planes, bytes) on either side."""

        def further(nest: Nest) -> Nest:
            return replace(nest, prefill=_sum(nest.prefill, prefill), decode=_sum(nest.decode, decode))

        return Table(
            tuple(map(further, self.per_page)),
            tuple(map(further, self.per_token)),
            tuple(_range(part, prefill) for part in self.unpack),
            tuple(_range(part, decode) for part in self.pack),
        )


def _range(part: PageRange, by: Place) -> PageRange:
    return replace(part, plane=part.plane + by[0], offset=part.offset + by[1])


def _sum(one: Place, other: Place) -> Place:
    return one[0] + other[0], one[1] + other[1]


@dataclass(frozen=True, slots=True)
class Read:
    """All that one decode worker reads from prefill worker `worker` for `groups`, the name of a GroupPair.

    `holds` are the global intervals on the split axes that this read covers, `layers` the global layer numbers. A
    cache with that name may be left out. The table counts planes from `first` and bytes of a page from
    `offset`, (those of the prefill worker, those of the decode worker), so that identical groups and workers share
    one.
    """

    worker: int
    groups: str
    cache: str = ""
    layers: tuple[int, ...] = ()
    holds: tuple[tuple[str, Interval], ...] = ()
    table: Table = Table()
    first: Place = (0, 0)
    offset: Place = (0, 0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", self.cache or self.groups)

    @property
    def placed(self) -> Table:
        """The table with the planes and bytes of the two workers."""
        return self.table.moved((self.first[0], self.offset[0]), (self.first[1], self.offset[1]))


@dataclass(frozen=True, slots=True)
class GroupPair:
    """A prefill group and a decode group with layers in common; `plan.match` pairs their blocks for a range of tokens.

    `page_rows` is the number of rows in a page of both sides, 0 if they differ or have none. A row is of `rows` tokens,
    and moves with the last of them. `needs` says which tokens of the range are read. Groups with the name of the
    pair may be left out.
    """

    name: str
    prefill: str = ""
    decode: str = ""
    page_rows: int = 0
    needs: Needs = ALL
    rows: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefill", self.prefill or self.name)
        object.__setattr__(self, "decode", self.decode or self.name)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for one pair of sides. `reads` and `notify` have one entry per decode worker.

    `notify` names the prefill workers that a decode worker only notifies when it is done; it also notifies those it
    reads from. Empty: there are none. `skipped` are optional caches that one side lacks.
    """

    format: int
    title: str
    model: str
    model_digest: str
    digest: str
    options: tuple[tuple[str, str], ...]
    prefill: Side
    decode: Side
    group_pairs: tuple[GroupPair, ...]
    reads: tuple[tuple[Read, ...], ...]
    notify: tuple[tuple[int, ...], ...] = ()
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise PlanFormatError(f"plan format {self.format}, this version reads {FORMAT}: compile the plan again")
        object.__setattr__(self, "notify", self.notify or ((),) * len(self.reads))
