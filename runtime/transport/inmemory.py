"""A transport within one process that copies memory. It has the interface of NIXL's, and refuses the same calls."""

from __future__ import annotations

import ctypes
import uuid
import weakref
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kvplan.plan.blocks import distinct
from kvplan.plan.types import Ints
from kvplan.runtime.errors import AddressError, HandleError, NotBegunError, PeerLostError, TransportError
from kvplan.runtime.transport.base import HandleState, Index, Op, PostedTransfer, PreparedList, check_rows, check_spans

# Bytes that one call copies: they fit a processor's cache.
TOGETHER = 1 << 20
# The smallest span, in bytes, that is copied by itself. Shorter spans times 2^47 addresses stay below numpy's 2^63.
LONG = 1 << 15
NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class Hub:
    """The agents that can reach each other. A frozen agent never answers. Its peers lose an agent that is removed."""

    agents: dict[str, InMemory] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False, weakref_slot=True)
class _List:
    """Strided rows prepared by one agent. `ends` has the number of descriptors up to each row's end."""

    agent: InMemory
    peer: str | None
    rows: Ints
    ends: Ints
    released: bool = False

    def release(self) -> None:
        self.released = True

    cut = release

    def at(self, index: Index) -> Ints:
        """Return rows (address, bytes) of the descriptors at `index`."""
        if self.released:
            raise HandleError("a prepared list is used after its release")
        if index.dtype != np.int32 or not index.size or index.min() < 0 or index.max() >= self.ends[-1]:
            raise NotBegunError("indices are none, or no int32 of the prepared list")
        run = np.searchsorted(self.ends, index, side="right")
        within = index - (self.ends[run] - self.rows[run, 4])
        return np.stack([self.rows[run, 0] + within * self.rows[run, 3], self.rows[run, 1]], axis=1)


class CopyTransfer(PostedTransfer):
    """A transfer that copies its bytes when it is polled, unless its peer is frozen."""

    def __init__(self, agent: InMemory, peer: str, source: Ints, target: Ints) -> None:
        super().__init__(peer)
        self.agent, self.source, self.target = agent, source, target

    def descriptors(self) -> int:
        return len(self.source)

    def _follow(self) -> None:
        try:
            self.agent.reach(self.peer)
        except PeerLostError:
            self.state = HandleState.FAILED
            raise
        if self.peer not in self.agent.hub.frozen:
            self._move()

    def _move(self) -> None:
        sizes = self.target[:, 1]
        for size in distinct(sizes).tolist():
            alike = sizes == size
            _copy(self.target[alike, 0], self.source[alike, 0], size)
        self.state = HandleState.DONE

    def _live(self) -> bool:
        return self.agent.name in self.agent.hub.agents

    def _give_back(self) -> None:
        """Do nothing: a copy has nothing to release."""


def _copy(target: Ints, source: Ints, size: int) -> None:
    """Copy `size` bytes from each source to its target. Short spans are copied many by one call, which is faster."""
    if size >= LONG:
        for to_address, from_address in zip(target.tolist(), source.tolist(), strict=True):
            ctypes.memmove(to_address, from_address, size)
        return
    step = TOGETHER // size
    for start in range(0, len(target), step):
        to, at = _spans(target[start : start + step], size)
        from_, there = _spans(source[start : start + step], size)
        to[at] = from_[there]


def _spans(address: Ints, size: int) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return the spans of `size` bytes at every address from first to last as rows, and the rows of `address`."""
    first, count = int(address.min()), int(address.max()) - int(address.min()) + 1
    return np.asarray(_Bytes(first, count, size)), address - first


class _Bytes:
    """Host memory for numpy: rows of `size` bytes, one for each of `count` addresses from `first` on."""

    def __init__(self, first: int, count: int, size: int) -> None:
        self.__array_interface__ = {
            "data": (first, False), "shape": (count, size), "strides": (1, 1), "typestr": "|u1", "version": 3
        }  # fmt: skip


class InMemory:
    """An agent of `hub`.

    With `pretends` it registers host memory under a device's memory type. Like in NIXL, a descriptor of one type never
    reaches memory that was registered as another.
    """

    def __init__(self, hub: Hub, name: str = "worker", *, pretends: bool = False) -> None:
        self.hub, self._word, self._pretends = hub, name, pretends
        self.fabrics, self.linger_s = frozenset({"memory"}), 0.0
        self.peers: set[str] = set()
        self._start()

    def _start(self) -> None:
        """Start under a new name, so that peers that know the old name have lost this agent."""
        self.name = f"{self._word}-{uuid.uuid4().hex}"
        self._regions: dict[str, tuple[Ints, Ints]] = {}
        self._given: weakref.WeakSet[_List | CopyTransfer] = weakref.WeakSet()
        self.hub.agents[self.name] = self

    def register(self, regions: Ints, mem_type: str) -> None:
        self._check_open()
        if mem_type != "DRAM" and not self._pretends:
            raise TransportError(f"the in-memory transport copies host memory only, not {mem_type}: use NIXL")
        check_spans(regions)
        before = self._regions.get(mem_type, (NONE, NONE))
        starts = np.concatenate([before[0], regions[:, 0]])
        ends = np.concatenate([before[1], regions[:, 0] + regions[:, 1]])
        order = np.argsort(starts, kind="stable")
        # For each start, the furthest end of all regions up to it. A span lies in a region if it ends before that.
        self._regions[mem_type] = starts[order], np.maximum.accumulate(ends[order])

    def deregister(self) -> None:
        """See `Transport.deregister`. Cuts transfers in progress, removes peers, and gives the agent another name."""
        self._check_open()
        self.close()
        self._start()

    def _check_open(self) -> None:
        if self.name not in self.hub.agents:
            raise TransportError(f"the transport {self.name} is closed: make a new one")

    def metadata(self) -> bytes:
        return self.name.encode()

    def add_peer(self, metadata: bytes) -> str:
        peer = metadata.decode(errors="replace")
        if peer not in self.hub.agents:
            raise PeerLostError(f"no agent {peer} in this process: connect to a peer that runs")
        self.peers.add(peer)
        return peer

    def remove_peer(self, peer: str) -> None:
        self.peers.discard(peer)

    def lost(self, peer: str) -> bool:
        self._check_open()
        return peer in self.peers and peer not in self.hub.agents

    broken = lost

    def reach(self, peer: str) -> InMemory:
        """Return the agent of a peer that was met. Raises PeerLostError if the peer or this agent has ended."""
        if peer not in self.peers or peer not in self.hub.agents or self.name not in self.hub.agents:
            raise PeerLostError(f"peer {peer} is lost: connect again")
        return self.hub.agents[peer]

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> _List:
        owner = self.reach(peer) if peer else self
        check_rows(rows)
        last = rows[:, 0] + (rows[:, 4] - 1) * rows[:, 3]
        owner.covers(np.stack([rows[:, 0], last + rows[:, 1] - rows[:, 0]], axis=1), mem_type)
        made = _List(self, peer, rows.copy(), np.cumsum(rows[:, 4]))
        self._given.add(made)
        return made

    def post(
        self, op: Op, peer: str, local: PreparedList, local_at: Index, remote: PreparedList, remote_at: Index
    ) -> CopyTransfer:
        return self._post(op, peer, self._own(local, None).at(local_at), self._own(remote, peer).at(remote_at))

    def _own(self, prepared: PreparedList, peer: str | None) -> _List:
        if not isinstance(prepared, _List) or prepared.agent is not self or prepared.peer != peer:
            raise HandleError("a prepared list belongs to another agent or to another peer")
        return prepared

    def post_spans(
        self, op: Op, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str
    ) -> CopyTransfer:
        self.covers(local, local_type)
        self.reach(peer).covers(remote, remote_type)
        return self._post(op, peer, local, remote)

    def _post(self, op: Op, peer: str, local: Ints, remote: Ints) -> CopyTransfer:
        self.reach(peer)
        if len(local) != len(remote) or (local[:, 1] != remote[:, 1]).any():
            raise NotBegunError("the two sides of a transfer differ in number or length")
        source, target = (remote, local) if op == "READ" else (local, remote)
        made = CopyTransfer(self, peer, source.copy(), target.copy())
        self._given.add(made)
        return made

    def covers(self, spans: Ints, mem_type: str) -> None:
        """Raises AddressError if a span (address, bytes) is in no region that was registered as that type."""
        check_spans(spans)
        starts, ends = self._regions.get(mem_type, (NONE, NONE))
        region = np.searchsorted(starts, spans[:, 0], "right") - 1
        if (region < 0).any() or (spans[:, 0] + spans[:, 1] > ends[region]).any():
            raise AddressError(f"a span leaves the {mem_type} that {self.name} has registered")

    def progress(self) -> int:
        return 0

    def close(self) -> None:
        self.hub.agents.pop(self.name, None)
        for given in list(self._given):
            given.cut()
        self._given.clear()
        self.peers.clear()
