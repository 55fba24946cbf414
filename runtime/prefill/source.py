"""Source requests: what of a pinned request is there, as a whole or in chunks, each after its caller's event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kvplan.plan.block_tables import Table, Tables, whole
from kvplan.plan.errors import BadRequestError
from kvplan.plan.request import Request, checked_range
from kvplan.plan.types import Blocks, Interval, Plan
from kvplan.runtime.transfer.chunks import Chunk, check_opened, check_tiled
from kvplan.runtime.transfer.told import contradicts, covers


class ComputeEvent(Protocol):
    """An event, such as a CUDA event: `query` says whether all work before it has completed."""

    def query(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class OfferedChunk:
    """One chunk: tokens [first, end), in all layers or some; `tables` name its pages on the prefill side."""

    tokens: tuple[int, int]
    layers: tuple[int, ...] | None
    tables: Tables
    last: bool
    after: ComputeEvent | None

    def chunk(self, only: bool) -> Chunk:
        """The chunk without its event; `only` its tables count."""
        layers = None if self.layers is None else frozenset(self.layers)
        return Chunk(self.tokens, self.last, layers, self.tables, only)


@dataclass(slots=True)
class SourceRequest:
    """One pinned request. `tokens` is None where it is held as a whole, after `after`; otherwise chunks are offered.

    `ready` chunks of `chunks` have been computed: they are announced in order. `tables` are the blocks of one that is
    whole, None where only decode knows them. With `again` the name was pinned before, and maybe with other blocks.
    """

    request: str
    pin: int
    tokens: tuple[int, int] | None = None
    after: ComputeEvent | None = None
    tables: Tables | None = None
    again: bool = False
    chunks: list[OfferedChunk] = field(default_factory=list)
    ready: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        if self.tokens is None:
            return self.after is None
        return bool(self.chunks) and self.chunks[-1].last and self.ready == len(self.chunks)

    @property
    def pending(self) -> bool:
        """Whether an event is waited for."""
        return self.after is not None if self.tokens is None else self.ready < len(self.chunks)

    @property
    def names_all(self) -> bool:
        """Whether every block that is read has to be one that this hold names itself."""
        return self.tables is not None or self.again

    def differs(self, told: Tables) -> str:
        """How blocks that decode was told of differ from those of the whole request; empty where they do not."""
        held = self.named_tables()
        unlike = [group for group, table in told.items() if not self._agrees(held.get(group), table)]
        return f"pin {self.pin} has other blocks of group {unlike[0]!r} than decode was told of" if unlike else ""

    def _agrees(self, held: Table | None, told: Table) -> bool:
        if self.names_all:
            return held is not None and covers(held, told)
        return held is None or not contradicts(told, held)

    def untiled(self, plan: Plan, worker: int, asked: Interval) -> str:
        """Why the chunks of one that is whole are not all of the tokens that are asked for; empty where they are."""
        if self.tokens is None:
            return ""
        request = Request(self.request, asked, {}, {})
        try:
            check_opened(request, self.tokens)
            check_tiled(plan, request, (one.chunk(False) for one in self.chunks), worker)
        except BadRequestError as error:
            return str(error)
        return ""

    def named_tables(self) -> Tables:
        """Its own tables, those that its chunks named put together."""
        tables: dict[str, Table] = dict(self.tables or {})
        for chunk in self.chunks:
            for group, table in chunk.tables.items():
                before = tables.get(group)
                both = isinstance(before, Blocks) and isinstance(table, Blocks)
                tables[group] = _joined(before, table) if both else table  # type: ignore[arg-type]
        return tables

    def offer(self, chunk: OfferedChunk) -> None:
        """Add a chunk. Raises BadRequestError where it is outside of what was opened, or comes after the last one."""
        name = f"request {self.request}"
        if self.tokens is None:
            raise BadRequestError(f"{name} is held as a whole: open it to offer chunks")
        if self.again and chunk.tokens[0] < chunk.tokens[1] and not chunk.tables:
            raise BadRequestError(f"{name} was held before, and decode may name its old blocks: give tables")
        if self.chunks and self.chunks[-1].last:
            raise BadRequestError(f"{name}: a chunk comes after the last one")
        if not self.tokens[0] <= chunk.tokens[0] <= chunk.tokens[1] <= self.tokens[1]:
            raise BadRequestError(f"{name} was opened for tokens {self.tokens}, offered are {chunk.tokens}")
        self.chunks.append(chunk)

    def completed(self) -> int:
        """How many chunks are computed, or 1 for a whole request. Raises what an event raises.

        Events are the caller's code: not within a turn. Chunks that are offered meanwhile count next time.
        """
        if self.tokens is None:
            return int(_past(self.after))
        count = self.ready
        while count < len(self.chunks) and _past(self.chunks[count].after):
            count += 1
        return count

    def advance(self, completed: int) -> bool:
        """So many are `completed`; whether that is more than before."""
        before = self.ready, self.after
        if self.tokens is None:
            self.after = None if completed else self.after
        else:
            self.ready = max(self.ready, completed)
        return (self.ready, self.after) != before


def _past(event: ComputeEvent | None) -> bool:
    return event is None or bool(event.query())


def _joined(one: Blocks, other: Blocks) -> Blocks:
    """Two tables of a group as one; where both have a block, the later one's."""
    first = min(one.first, other.first)
    ids = np.full(max(one.first + one.ids.size, other.first + other.ids.size) - first, -1, np.int64)
    for table in (one, other):
        at = slice(table.first - first, table.first - first + table.ids.size)
        ids[at] = np.where(table.ids >= 0, table.ids, ids[at])
    return Blocks(first, ids)


def check_event(request: str, after: object) -> None:
    """Raises BadRequestError where `after` cannot be asked whether it has completed."""
    if after is not None and not callable(getattr(after, "query", None)):
        raise BadRequestError(f"request {request}: an event has a query(), as CUDA events have; given is {after!r}")


def interval(tokens: object, what: str) -> tuple[int, int]:
    """`tokens` as two ints, first <= end. Raises BadRequestError that begins with `what`."""
    try:
        return checked_range(tokens)
    except BadRequestError as error:
        raise BadRequestError(f"{what}: {error}") from error


def numbered(layers: Iterable[int] | None, what: str) -> tuple[int, ...] | None:
    """`layers` as ints in order. Raises BadRequestError."""
    return None if layers is None else tuple(sorted({whole(layer, what) for layer in layers}))
