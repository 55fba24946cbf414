"""The content of the demo's caches, and its check on decode workers: every byte follows from its label alone.

Labels and addresses are those of the compiler's second opinion, which shares nothing with the plan under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.demo.memory import Bytes, DemoMemory
from kvplan.demo.requests import RequestShare
from kvplan.plan.types import Ints

if TYPE_CHECKING:
    from kvplan.compiler.check.labels import NeededTokens
    from kvplan.compiler.check.oracle import OraclePlane

    # The tokens of a plane that exist; None for all that its blocks have.
    Rule = Callable[[RequestShare, OraclePlane], NeededTokens | None]

BATCH = 1 << 21
ODD = np.uint64(0x9E3779B97F4A7C15)


class WrongBytesError(Exception):
    """A decode worker lacks bytes that it must hold, or bytes changed that no request covers."""


def held(share: RequestShare, plane: OraclePlane) -> NeededTokens | None:
    """Return None: a worker that computed the request has all its tokens, except those that a ring overwrote."""
    return None


def arrived(share: RequestShare, plane: OraclePlane) -> NeededTokens | None:
    """Return the tokens that a transfer must bring: those that decode needs."""
    from kvplan.compiler.check.pages import needed

    return needed(share.decode, plane, share.request)


def stamp(share: RequestShare, rule: Rule, into: Mapping[str, Bytes]) -> int:
    """Write the content of the tokens that `rule` gives into a worker's planes, by name; return the bytes written."""
    return sum(_write(into[plane.name], ids, labels) for plane, ids, labels in _labelled(share, rule))


def check(share: RequestShare, memory: DemoMemory, before: DemoMemory) -> tuple[int, int]:
    """Return (bytes of content, bytes compared) of a decode worker. Raises WrongBytesError at the first different byte.

    `before` is the memory before; it becomes the expected memory: the content that must have arrived, cache by cache,
    and everything else unchanged. Only padding of blocks with new content may also have changed, because a run that is
    posted whole may carry the padding between its spans.
    """
    written, dealt = 0, dict[str, list[Ints]]()
    for plane, ids, labels in _labelled(share, arrived):
        chosen = np.ix_(ids[(labels >= 0).any(axis=1)], np.flatnonzero(padding(plane)))
        before.planes[plane.name][chosen] = memory.planes[plane.name][chosen]
        written += _write(before.planes[plane.name], ids, labels)
        dealt.setdefault(plane.name, []).append(ids)
    if not all(np.array_equal(*both) for both in zip(memory.arenas, before.arenas, strict=True)):
        owned = {name: np.concatenate(ids) for name, ids in dealt.items()}
        raise WrongBytesError(f"decode worker {share.number}: {_where(memory, before, owned)}")
    return written, sum(arena.nbytes for arena in memory.arenas)


def _labelled(share: RequestShare, rule: Rule) -> Iterator[tuple[OraclePlane, Ints, Ints]]:
    """Yield every plane of a worker, its kernel blocks (or slots) of the request, and a row of labels for each.

    A few million labels at a time, which take eight bytes each.
    """
    from kvplan.compiler.check.labels import paged, paint, table_of
    from kvplan.compiler.check.oracle import planes
    from kvplan.compiler.check.pages import labelled

    every = labelled(share.prefill, share.decode, share.request)
    regions = {key: region for key, region in every.items() if key[0] not in share.skipped}
    side, worker = share.side, share.side.workers[share.number]
    blocks = {group.name: paged(side, worker, group, table_of(share.tables, group)) for group in side.groups}
    for plane in planes(side, worker).values():
        ids, token = blocks[plane.group.name].ids, blocks[plane.group.name].token
        for cut in np.split(np.arange(ids.size), np.arange(0, ids.size, max(1, BATCH // plane.page))[1:]):
            yield plane, ids[cut], paint(plane, regions, token[cut], rule(share, plane))


def _write(plane: Bytes, ids: Ints, labels: Ints) -> int:
    """Write the bytes of some blocks that have labels; return their number."""
    page, known = plane[ids, : labels.shape[1]], labels >= 0
    page[known] = content(labels[known])
    plane[ids, : labels.shape[1]] = page
    return int(known.sum())


def content(labels: Ints) -> Bytes:
    """Return the byte of every label, mixed so that no regular pattern makes two places equal."""
    value = labels.astype(np.uint64) * ODD
    value = (value ^ (value >> np.uint64(32))) * ODD
    return (value >> np.uint64(56)).astype(np.uint8)


def padding(plane: OraclePlane) -> npt.NDArray[np.bool_]:
    """Return a mask of the bytes from one block to the next that belong to no tensor."""
    free = np.ones(plane.stride, np.bool_)
    for field in plane.fields:
        free[(field.offset[..., None] + np.arange(field.tensor.size)).reshape(-1)] = False
    return free


def _where(memory: DemoMemory, expected: DemoMemory, owners: Mapping[str, Ints]) -> str:
    """Describe the first different byte, by the plane that owns the block, because planes may overlay each other."""
    every = {name: np.arange(len(view)) for name, view in memory.planes.items()}
    for name, blocks in (*owners.items(), *every.items()):
        got, want = memory.planes[name][blocks], expected.planes[name][blocks]
        unlike = np.argwhere(got != want)
        if unlike.size:
            row, offset = unlike[0]
            place = f"plane {name}, block {blocks[row]}, byte {offset}"
            what = f"is {got[row, offset]}, must be {want[row, offset]}"
            return f"{place} {what} ({len(unlike):,} bytes of the plane are wrong)"
    return "a byte outside every plane was written"
