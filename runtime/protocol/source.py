"""Source: what of a pinned request is computed, as a whole or in chunks."""

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
    """One pinned request. `tokens` is None where it is held as a whole; otherwise chunks are offered.

    The first `ready` of the `chunks` are computed: they are announced in order. A whole request counts as one. `tables`
    are its blocks, None where only decode knows them. With `again` the name was pinned before, and maybe with other
    blocks. `note` is what the engine attached for those who read the request.
    """

    request: str
    pin: int
    tokens: Interval | None = None
    tables: Tables | None = None
    again: bool = False
    note: bytes = b""
    chunks: list[Chunk] = field(default_factory=list)
    ready: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        if self.tokens is None:
            return self.ready > 0
        return bool(self.chunks) and self.chunks[-1].last and self.ready == len(self.chunks)

    @property
    def names_all(self) -> bool:
        """Whether every block that is read has to be one that this hold names itself."""
        return self.tables is not None or self.again

    def differs(self, told: Tables) -> str:
        """How blocks that decode was told of differ from those of the whole request; empty where they do not."""
        held = self.named_tables()
        unlike = [group for group, table in told.items() if not self._agrees(held.get(group), table)]
        return f"pin {self.pin} has other blocks of group {unlike[0]!r} than decode knows" if unlike else ""

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
            check_tiled(plan, request, self.chunks, worker)
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

    def offer(self, chunk: Chunk, note: bytes) -> None:
        """Add a chunk, and to the last one a note. Raises BadRequestError.

        It raises that if the chunk is outside of what was opened or comes after the last one, or if a note comes
        before the last one: a reader is told once.
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
        """So many chunks are computed, or 1 for a whole request; whether that is more than before."""
        before, most = self.ready, 1 if self.tokens is None else len(self.chunks)
        self.ready = max(before, min(computed, most))
        return self.ready > before


def _joined(one: Blocks, other: Blocks) -> Blocks:
    """Two tables of a group as one; where both have a block, the later one's."""
    first = min(one.first, other.first)
    ids = np.full(max(one.first + one.ids.size, other.first + other.ids.size) - first, -1, np.int64)
    for table in (one, other):
        at = slice(table.first - first, table.first - first + table.ids.size)
        ids[at] = np.where(table.ids >= 0, table.ids, ids[at])
    return Blocks(first, ids)
