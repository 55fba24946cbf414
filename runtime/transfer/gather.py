"""Descriptor gathering, the hot path: turns the runs of a request into the spans to post over one link.

Blocks that are adjacent on both sides become one explicit span. All others go by index into the prepared lists: an
index costs less than a nanosecond, an explicit address ten, a posted descriptor a thousand. Spans are merged here,
because NIXL merges only consecutive indices of two dense prepared lists (`makeXferReq` in src/core/nixl_agent.cpp,
`populate` in src/infra/nixl_memory_section.cpp, of NIXL 1.5.1). It would not join padding, runs of tokens and
neighbouring planes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan import spans
from kvplan.plan.blocks import NO_RUNS, Mask, chains, following
from kvplan.plan.types import Ints, Runs
from kvplan.runtime.errors import AddressError, LimitError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.staging.staged import StagedPiece
from kvplan.runtime.transfer.prepare import INT32
from kvplan.runtime.transfer.prepared import DescriptorBank, PreparedLink, PreparedRead
from kvplan.runtime.transport.base import Index

NOTHING, NO_SPANS = np.empty((0, 5), np.int64), np.empty((0, 3), np.int64)
# Cached columns of index tables, a few dozen numbers each: a link uses a few shapes again and again.
KEPT_STARTS = 1024


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """Rows [first, end) of explicit spans, which on each side lie in one type of memory."""

    first: int
    end: int
    local_type: str
    remote_type: str


@dataclass(frozen=True, slots=True)
class GatheredSpans:
    """The spans to post over one link: indices into its banks, and explicit rows (address, bytes, device) per side.

    The indices (local, remote) are views of the scratch: post them before the next load is gathered. The rows are
    posted in `batches`. `bytes` are the requested bytes, without padding between them; `spans` is the number of spans
    before any were joined.
    """

    banks: tuple[tuple[DescriptorBank, Index, Index], ...]
    local_spans: Ints
    remote_spans: Ints
    batches: tuple[SpanBatch, ...]
    bytes: int
    spans: int

    @property
    def descriptors(self) -> int:
        """The number of descriptors that the transport posts."""
        return sum(len(local) for _, local, _ in self.banks) + len(self.local_spans)

    def shifted(self, by: int, *, local: bool) -> GatheredSpans:
        """Return the same spans with the explicit rows of one side `by` bytes further."""
        further = np.array([by, 0, 0])
        if local:
            return replace(self, local_spans=self.local_spans + further)
        return replace(self, remote_spans=self.remote_spans + further)


class IndexScratch:
    """A reused buffer for indices, because fresh memory costs more than writing the indices."""

    def __init__(self) -> None:
        self._free = np.empty(0, np.int32)
        self._used = 0

    def clear(self) -> None:
        self._used = 0

    def table(self, lines: int, step: int, blocks: Index) -> Index:
        """Return the index of every block in `lines` rows that begin `step` apart."""
        size = lines * len(blocks)
        out = self._take(size)
        # Two passes in place: numpy has vector loops for these, and none for one pass of a scalar plus a row.
        grid = out.reshape(lines, len(blocks))
        grid[:] = _starts(lines, step)
        grid += blocks
        return out

    def _take(self, size: int) -> Index:
        if self._used + size > len(self._free):
            self._free, self._used = np.empty(2 * size + len(self._free), np.int32), 0
        self._used += size
        return self._free[self._used - size : self._used]


@lru_cache(KEPT_STARTS)
def _starts(lines: int, step: int) -> Index:
    """Return a column with the index of block 0 in `lines` rows that begin `step` apart."""
    column = (np.arange(lines, dtype=np.int64) * step).astype(np.int32)[:, None]
    column.flags.writeable = False
    return column


def gather(link: PreparedLink, runs: Mapping[str, Runs], scratch: IndexScratch) -> GatheredSpans:
    """Return the spans to post over `link` for `runs` by pair. Raises LimitError above 2^31 - 1 descriptors."""
    scratch.clear()
    out = _Gathered(link, scratch)
    total, parts = 0, dict[object, tuple[Runs, Runs]]()
    for entry in link.entries:
        key = entry.pair.name, not entry.read.table.per_token, not entry.read.table.per_page, entry.within
        if key not in parts:
            parts[key] = _parts(entry, entry.own(runs[entry.pair.name]))
        pages, ragged = parts[key]
        if (total := total + _most(entry, pages, ragged)) > INT32:
            text = f"{total} descriptors from worker {link.prefill_worker} to {link.decode_worker}, at most {INT32}"
            raise LimitError(f"{text}: ask for fewer tokens at once")
        _entry(entry, pages, ragged, out)
    merged = merge(np.concatenate(out.explicit)) if out.explicit else NOTHING
    return GatheredSpans(tuple(out.banks), *_sides(link, merged), out.bytes, out.spans)


def _parts(entry: PreparedRead, of_pair: Runs) -> tuple[Runs, Runs]:
    """Return the runs of whole pages, and the others. Reads of a pair with the same kinds of tables share them."""
    if spans.is_whole(entry.read.table):
        return of_pair, NO_RUNS
    whole = spans.whole_pages(entry.pair.page_rows, entry.read.table, of_pair)
    pages, ragged = (of_pair, NO_RUNS) if whole.all() else (spans.pick(of_pair, whole), spans.pick(of_pair, ~whole))
    return pages, ragged


def gather_staged(link: PreparedLink, piece: StagedPiece) -> GatheredSpans:
    """Return the spans to post for a piece in a buffer at address 0; `shifted` moves them to the buffer's address.

    The address of a buffer does not change which spans are joined.
    """
    spelled, count = piece.spelled()
    return GatheredSpans((), *_sides(link, merge(spelled)), piece.moved, count)


def merge(spelled: Ints) -> Ints:
    """Join adjacent rows (prefill address, decode address, bytes, prefill region, decode region).

    The result is sorted by decode address. Raises AddressError if two rows would write the same byte.
    """
    if len(spelled) < 2:
        return spelled
    spelled = spelled[np.argsort(spelled[:, 1], kind="stable")]
    before, after = spelled[:-1], spelled[1:]
    gap = after[:, 1] - before[:, 1] - before[:, 2]
    if (gap < 0).any():
        raise AddressError(f"two spans write byte {after[gap.argmin(), 1]:#x}: the block table or the plan is wrong")
    joined = (gap == 0) & (after[:, 0] - before[:, 0] == before[:, 2])
    if not joined.any():
        return spelled
    joined &= (after[:, 3:] == before[:, 3:]).all(axis=1)
    first = np.flatnonzero(np.concatenate(([True], ~joined)))
    merged = spelled[first]
    merged[:, 2] = np.add.reduceat(spelled[:, 2], first)
    return merged


def by_decode(p: Ints, d: Ints, blocks: int) -> tuple[Index, Index]:
    """Return block pairs of pools of at most `blocks`, sorted by decode block so that adjacent ones are found."""
    # Sorting one number per pair is eight times as fast as sorting an index; 32 bits are three times as fast again.
    half, kind = (16, np.uint32) if blocks <= 1 << 16 else (32, np.int64)
    both = np.sort(((d << half) | p).astype(kind, copy=False))
    return (both & kind((1 << half) - 1)).astype(np.int32), (both >> kind(half)).astype(np.int32)


@dataclass(slots=True)
class _Gathered:
    """The spans and indices that are gathered so far."""

    link: PreparedLink
    scratch: IndexScratch
    banks: list[tuple[DescriptorBank, Index, Index]] = field(default_factory=list)
    explicit: list[Ints] = field(default_factory=list)
    bytes: int = 0
    spans: int = 0


def _most(entry: PreparedRead, pages: Runs, ragged: Runs) -> int:
    """Return the most descriptors of whole pages and ragged runs, before any are joined."""
    partial = sum(tokens.most(ragged) for tokens in entry.token) if len(ragged.count) else 0
    return len(pages.count) * len(entry.page) + partial


def _entry(entry: PreparedRead, pages: Runs, ragged: Runs, out: _Gathered) -> None:
    beside = ragged.decode_block if len(ragged.count) else None
    if beside is not None:
        table = spans.token_spans(entry.token, ragged, *(side.stride for side in entry.sides))
        out.bytes += int(ragged.count.sum()) * entry.token_bytes
        out.spans += len(table)
        out.explicit.append(_addresses(entry.sides, table))
    out.bytes += len(pages.count) * entry.page_bytes
    out.spans += len(pages.count) * len(entry.page)
    _pages(entry, pages.prefill_block, pages.decode_block, beside, out)


def _pages(entry: PreparedRead, p: Ints, d: Ints, ragged: Ints | None, out: _Gathered) -> None:
    if not len(p):
        return
    if not entry.banks:
        out.explicit.append(_spelled(entry.addresses, p, d, np.ones_like(p)))
        return
    narrow = by_decode(p, d, max(entry.blocks)) if entry.joinable else (p.astype(np.int32), d.astype(np.int32))
    if entry.joinable:
        _joined(entry, *narrow, ragged, out)
    if entry.joinable < len(entry.addresses):
        _index(entry, False, *narrow, out)


def _joined(entry: PreparedRead, p: Index, d: Index, ragged: Ints | None, out: _Gathered) -> None:
    alone = _alone(entry, p, d, ragged)
    if alone.all():
        _index(entry, True, p, d, out)
        return
    _index(entry, True, p[alone], d[alone], out)
    wide = p[~alone].astype(np.int64), d[~alone].astype(np.int64)
    start, length = chains(*wide)
    out.explicit.append(_spelled(entry.addresses[: entry.joinable], wide[0][start], wide[1][start], length))


def _alone(entry: PreparedRead, p: Index, d: Index, ragged: Ints | None) -> Mask:
    """Return which blocks join nothing: not in a chain, not beside a partial block, not at the end of a plane."""
    alone = ~following(p, d)
    alone[:-1] &= alone[1:]
    ends = entry.blocks[0] - 1, entry.blocks[1] - 1
    if (p[0], d[0]) == (0, 0) and (p[-1], d[-1]) == ends:
        alone[[0, -1]] = False
    if ragged is not None:
        alone[_holding(d, np.concatenate([ragged - 1, ragged + 1]))] = False
        alone &= (p > 0) & (p < ends[0]) & (d > 0) & (d < ends[1])
    return alone


def _holding(ordered: Index, ids: Ints) -> Ints:
    """Return the places in `ordered` of those `ids` that it has."""
    place: Ints = np.searchsorted(ordered, ids)
    held: Ints = place[ordered.take(place, mode="clip") == ids]
    return held


def _index(entry: PreparedRead, joinable: bool, p: Index, d: Index, out: _Gathered) -> None:
    """Add these blocks of every bank. Rows of all banks have the same indices, so all share one table."""
    banks = [bank for bank in entry.banks if bank.joinable == joinable]
    if not len(p) or not banks:
        return
    lines = max(bank.rows for bank in banks)
    tables = [out.scratch.table(lines, step, blocks) for step, blocks in zip(entry.blocks, (p, d), strict=True)]
    local, remote = tables if out.link.push else reversed(tables)
    out.banks.extend((bank, local[: bank.rows * len(p)], remote[: bank.rows * len(p)]) for bank in banks)


def _spelled(addresses: Ints, p: Ints, d: Ints, length: Ints) -> Ints:
    """Return rows for `merge`: every row of `addresses` for chains of `length` blocks from `p` and `d` on."""
    spelled = np.empty((len(addresses), len(p), 5), np.int64)
    address, stride = addresses[:, :2, None], addresses[:, 3:5, None]
    spelled[:, :, 0] = address[:, 0] + stride[:, 0] * p
    spelled[:, :, 1] = address[:, 1] + stride[:, 1] * d
    spelled[:, :, 2] = addresses[:, 2, None] + stride[:, 1] * (length - 1)
    spelled[:, :, 3:] = addresses[:, None, 5:7]
    return spelled.reshape(-1, 5)


def _addresses(sides: tuple[Geometry, Geometry], table: Ints) -> Ints:
    p, d = table[:, rows.P_PLANE], table[:, rows.D_PLANE]
    spelled = np.empty((len(table), 5), np.int64)
    spelled[:, 0] = sides[0].base[p] + table[:, rows.P_OFFSET]
    spelled[:, 1] = sides[1].base[d] + table[:, rows.D_OFFSET]
    spelled[:, 2] = table[:, rows.BYTES]
    spelled[:, 3] = sides[0].region[p]
    spelled[:, 4] = sides[1].region[d]
    return spelled


def _sides(link: PreparedLink, merged: Ints) -> tuple[Ints, Ints, tuple[SpanBatch, ...]]:
    """Return the explicit rows (address, bytes, device) of the local and the remote side, and their batches."""
    if not len(merged):
        return NO_SPANS, NO_SPANS, ()
    merged, batches = batched(link, merged)
    prefill, decode = merged[:, [0, 2, 3]], merged[:, [1, 2, 4]]
    prefill[:, 2] = link.prefill.regions[prefill[:, 2], 2]
    decode[:, 2] = link.decode.regions[decode[:, 2], 2]
    return *((prefill, decode) if link.push else (decode, prefill)), batches


def batched(link: PreparedLink, merged: Ints) -> tuple[Ints, tuple[SpanBatch, ...]]:
    """Return the rows grouped by types of memory, otherwise in their order, and the batch of each group."""
    if len({*link.prefill.mem_types}) == len({*link.decode.mem_types}) == 1:
        return merged, (SpanBatch(0, len(merged), *link.types(0, 0)),)
    regions, of_row = np.unique(merged[:, 3:5], axis=0, return_inverse=True)
    types = [link.types(*both) for both in regions.tolist()]
    names = sorted(set(types))
    batch = np.array([names.index(one) for one in types])[of_row.reshape(-1)]
    ends = np.cumsum(np.bincount(batch, minlength=len(names))).tolist()
    batches = tuple(SpanBatch(*cut, *name) for cut, name in zip(pairwise([0, *ends]), names, strict=True))
    return merged[np.argsort(batch, kind="stable")], batches
