"""Prepared links: the reads between two workers, expanded to rows, with the descriptor lists of both sides.

`prepare` makes them. Their numbers are addresses and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from kvplan.plan import expand as rows
from kvplan.plan import spans
from kvplan.plan.blocks import Mask
from kvplan.plan.layers import MOST_SETS, Layers
from kvplan.plan.types import GroupPair, Interval, Ints, Read, Runs
from kvplan.runtime.errors import LimitedError, TransportError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.staging.staged import ImagePart
from kvplan.runtime.transport.base import Op, PreparedList


@dataclass(frozen=True, slots=True)
class DescriptorBank:
    """Some page rows of a read, prepared on both sides: descriptor number = row x blocks of the pool + block.

    On each side, all rows lie in one type of memory.
    """

    rows: int
    joinable: bool
    local: PreparedList
    remote: PreparedList


@dataclass(frozen=True, slots=True)
class PreparedRead:
    """One read, expanded, or all reads of a pair of groups, which have the same runs. `read` is the first of them.

    `page` are the rows of the page tables. `addresses` are the same bytes in block 0, with adjacent rows joined across
    planes and caches: prefill address, decode address, bytes, prefill stride, decode stride, prefill region, decode
    region, prefill blocks, decode blocks. The first `joinable` of them continue from one block into the next on both
    sides. `blocks` are the numbers of blocks of the pools (prefill, decode). Without `banks`, all is posted by address:
    for a state, for more blocks than an int32 indexes, and for a read with `parts` of an image that is not staged now.
    `page_bytes` and `token_bytes` are the bytes of all rows. `sides` has the geometry of the planes. If blocks of a
    side lie in two memories, `within` are the blocks of both sides that the rows are for.
    """

    read: Read
    pair: GroupPair
    page: Ints
    token: tuple[rows.TokenRows, ...]
    addresses: Ints
    joinable: int
    blocks: tuple[int, int]
    banks: tuple[DescriptorBank, ...]
    page_bytes: int
    token_bytes: int
    sides: tuple[Geometry, Geometry]
    within: tuple[Interval, Interval] | None = None
    parts: tuple[ImagePart, ...] = ()

    def own(self, runs: Runs) -> Runs:
        """Return the runs whose blocks are `within`, with blocks counted from the first one there."""
        if self.within is None:
            return runs
        found = spans.pick(runs, self.moves(runs))
        (prefill, _), (decode, _) = self.within
        return found._replace(prefill_block=found.prefill_block - prefill, decode_block=found.decode_block - decode)

    def moves(self, runs: Runs) -> Mask:
        """Return which runs have their blocks `within`."""
        every = np.ones(len(runs.count), np.bool_)
        for blocks, (first, end) in zip((runs.prefill_block, runs.decode_block), self.within or (), strict=False):
            every &= (first <= blocks) & (blocks < end)
        return every


@dataclass(frozen=True, slots=True)
class PreparedLink:
    """The link between a prefill worker and a decode worker: geometry of both, reads, prepared lists.

    `peer` is the transport name of the other worker. With `push` this process has the prefill worker, and writes;
    otherwise it has the decode worker, and reads. Reads with parts of an image go through the `stage`, or through the
    `peer_stage` if the other side copies. `layers` are those that it moves, None for all.
    """

    prefill_worker: int
    decode_worker: int
    peer: str
    push: bool
    prefill: Geometry
    decode: Geometry
    entries: tuple[PreparedRead, ...] = ()
    stage: Stage | None = None
    peer_stage: PeerStage | None = None
    layers: Layers | None = None

    @property
    def staged(self) -> bool:
        """Whether any read goes through a stage now."""
        return any(self.stages(entry) for entry in self.entries)

    @property
    def ways(self) -> tuple[bool, ...]:
        """Whether each read goes through a stage now, by read."""
        return tuple(self.stages(entry) for entry in self.entries)

    def stages(self, entry: PreparedRead) -> bool:
        """Return whether a read goes through a stage: it has parts of an image, and its stage is not stuck."""
        if entry.parts and self.at_peer(entry):
            return self.peer_stage is not None and not self.peer_stage.stuck
        return (
            bool(entry.parts) and self.stage is not None and not self.stage.of(entry.parts[0].memory).stuck(self.peer)
        )

    def at_peer(self, entry: PreparedRead) -> bool:
        """Return whether a staged read goes through the peer's stage: prefill packs, decode unpacks."""
        return entry.parts[0].packed != self.push

    @property
    def cut(self) -> bool:
        """Whether its lists were released because its peer reconnected. Checks one list: all are released together."""
        first = next((bank for entry in self.entries for bank in entry.banks), None)
        return first is not None and first.remote.released

    @property
    def op(self) -> Op:
        return "WRITE" if self.push else "READ"

    def types(self, prefill: int, decode: int) -> tuple[str, str]:
        """Return the types of memory (local, remote) of two regions, prefill's and decode's."""
        there, here = self.prefill.mem_types[prefill], self.decode.mem_types[decode]
        return (there, here) if self.push else (here, there)

    def release(self) -> None:
        """Release the prepared lists."""
        release(self.entries)


class PreparedLinks:
    """The links to one peer by the layers that move together, None for all.

    `prepare` makes each when it is first needed, and again after the peer reconnected.
    """

    def __init__(self, prepare: Callable[[Layers | None], PreparedLink]) -> None:
        self._prepare, self._links = prepare, dict[Layers | None, PreparedLink]()

    def of(self, layers: Layers | None) -> PreparedLink:
        """Return the link for some layers. Raises what preparing raises, LimitedError for too many sets of layers."""
        if (known := self._links.get(layers)) is not None and known.cut:
            self.release()
        if layers not in self._links:
            if len(self._links) >= MOST_SETS:
                raise LimitedError(f"{MOST_SETS} different sets of layers were offered: offer the same ones each time")
            self._links[layers] = self._prepare(layers)
        return self._links[layers]

    def release(self) -> None:
        """Release the prepared lists. Errors of the transport are logged."""
        for link in self._links.values():
            try:
                link.release()
            except TransportError as error:
                logs.event(logs.WARNING, "release failed", peer=link.peer, error=error)
        self._links = {}


def release(entries: Iterable[PreparedRead]) -> None:
    release_banks(bank for entry in entries for bank in entry.banks)


def release_banks(banks: Iterable[DescriptorBank]) -> None:
    for bank in banks:
        bank.local.release()
        bank.remote.release()
