"""Source: how much of a held request is computed, as a whole or in chunks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from kvplan.plan.block_tables import Table, Tables
from kvplan.plan.errors import BadRequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Interval, Plan
from kvplan.runtime.transfer.chunks import Chunk, check_opened, check_tiled
from kvplan.runtime.transfer.table_agreement import contradicts, covers


@dataclass(slots=True)
class SourceRequest:
    """One held request. `tokens` is None if it is held as a whole; otherwise chunks are offered.

    The first `ready` of the `chunks` are computed: they are announced in order. A whole request counts as one chunk.
    `tables` are its blocks, None if only decode knows them. `again` says that the name was held before, maybe with
    other blocks. `note` is what the engine attached for readers.
    """

    request: str
    hold: int
    tokens: Interval | None = None
    tables: Tables | None = None
    again: bool = False
    note: bytes = b""
    chunks: list[Chunk] = field(default_factory=list)
    ready: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of it is computed."""
        if self.tokens is None:
            return self.ready > 0
        return bool(self.chunks) and self.chunks[-1].last and self.ready == len(self.chunks)

    @property
    def names_all(self) -> bool:
        """Whether readers may read only blocks that this hold names."""
        return self.tables is not None or self.again

    def differs(self, told: Tables) -> str:
        """Return how the blocks that decode knows differ from those of the whole request; empty if they agree."""
        held = self.named_tables()
        unlike = [group for group, table in told.items() if not self._agrees(held.get(group), table)]
        return f"hold {self.hold} has other blocks of group {unlike[0]!r} than decode knows" if unlike else ""

    def _agrees(self, held: Table | None, told: Table) -> bool:
        if self.names_all:
            return held is not None and covers(held, told)
        return held is None or not contradicts(told, held)

    def untiled(self, plan: Plan, worker: int, asked: Interval) -> str:
        """Return why the chunks of a whole request do not cover the tokens `asked` for; empty if they do."""
        if self.tokens is None:
            return ""
        request = Request(self.request, asked, {}, {})
        try:
            check_opened(request, self.tokens)
            check_tiled(plan, request, self.chunks, worker)
        except BadRequestError as error:
            return str(error)
        return ""

    def named_tables(self) -> Tables:
        """Return the tables of the hold and of all its chunks, joined."""
        tables: dict[str, Table] = dict(self.tables or {})
        for chunk in self.chunks:
            for group, table in chunk.tables.items():
                before = tables.get(group)
                both = isinstance(before, Blocks) and isinstance(table, Blocks)
                tables[group] = _joined(before, table) if both else table  # type: ignore[arg-type]
        return tables

    def offer(self, chunk: Chunk, note: bytes) -> None:
        """Add a chunk, and to the last one a note.

        Raises BadRequestError if the chunk is outside of the opened tokens or comes after the last one, or if a note
        comes before the last one: readers get one note.
        """
        name = f"request {self.request}"
        if self.tokens is None:
            raise BadRequestError(f"{name} is held as a whole: open it to offer chunks")
        if self.again and chunk.tokens[0] < chunk.tokens[1] and not chunk.tables:
            raise BadRequestError(f"{name} was held before, and decode may name its old blocks: give tables")
        if self.chunks and self.chunks[-1].last:
            raise BadRequestError(f"{name}: a chunk comes after the last one")
        if not self.tokens[0] <= chunk.tokens[0] <= chunk.tokens[1] <= self.tokens[1]:
            raise BadRequestError(f"{name} was opened for tokens {self.tokens}, offered are {chunk.tokens}")
        if note and not chunk.last:
            raise BadRequestError(f"{name}: a note comes with the last chunk, and this one is not the last")
        self.note = note
        self.chunks.append(replace(chunk, only=self.names_all))

    def advance(self, computed: int) -> bool:
        """Note how many chunks are `computed`, 1 for a whole request. Returns whether that is more than before."""
        before, most = self.ready, 1 if self.tokens is None else len(self.chunks)
        self.ready = max(before, min(computed, most))
        return self.ready > before


def _joined(one: Blocks, other: Blocks) -> Blocks:
    """Return two tables of a group as one; if both have a block, that of `other`."""
    first = min(one.first, other.first)
    ids = np.full(max(one.first + one.ids.size, other.first + other.ids.size) - first, -1, np.int64)
    for table in (one, other):
        at = slice(table.first - first, table.first - first + table.ids.size)
        ids[at] = np.where(table.ids >= 0, table.ids, ids[at])
    return Blocks(first, ids)
