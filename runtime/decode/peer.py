"""A prefill engine that a decode worker has met: its workers, how they are spoken to, what is prepared for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import EngineCard, WorkerCard, geometry
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.messages import Claim
from kvplan.runtime.control.wire import Wired
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.transfer.demand import pools
from kvplan.runtime.transfer.links import Links
from kvplan.runtime.transfer.prepare import link
from kvplan.runtime.transport.base import Transport

FIRST_LEASE = 6.0
LEASES = (0.01, 1e6)
Named = dict[str, Wired]
BEATS = 6


@dataclass(slots=True, eq=False)
class PrefillConnection:
    """One prefill worker. `peer` is its name in the transport, `blocks` are its pools by group.

    `reads` says that bytes come from it.
    """

    worker: int
    card: WorkerCard
    line: ControlClient
    peer: str
    prefill: Geometry
    blocks: Mapping[str, int]
    reads: bool
    links: Links


@dataclass(frozen=True, slots=True)
class LocalWorker:
    """The decode worker that meets others: its number, its memory, its transport."""

    worker: int
    geometry: Geometry
    transport: Transport


class PrefillEngine:
    """A met engine. `push` says that it writes; otherwise this side reads. Not safe from threads."""

    def __init__(self, met: MetEngine, push: bool, home: LocalWorker, now: float) -> None:
        self.engine: EngineCard = met.engine
        self.plan: Plan = met.plan
        self.push, self.used = push, now
        self.members: dict[int, PrefillConnection] = {}
        self._pools: dict[str, int] | None = None
        self._home, self._beat, self._lease, self._next = home, 0, FIRST_LEASE, now

    def add(self, card: WorkerCard, line: ControlClient) -> None:
        """Meet one worker: check its memory, tell the transport, prepare. Raises what any of these raises."""
        lies = geometry(card)
        shape.check(lies, self.plan.prefill, card.worker)
        reads = any(read.worker == card.worker for read in self.plan.reads[self._home.worker])
        home, peer = self._home, self._home.transport.add_peer(card.metadata)
        ends = card.worker, home.worker, peer, home.transport, lies, home.geometry
        blocks = shape.logical_blocks(lies, self.plan.prefill, card.worker)
        links = Links(lambda layers: link(self.plan, *ends, layers=layers))
        self.members[card.worker] = PrefillConnection(card.worker, card, line, peer, lies, blocks, reads, links)
        if reads and not self.push:
            links.of(None)

    @property
    def name(self) -> str:
        return self.engine.name

    def pools(self) -> dict[str, int]:
        """Logical prefill blocks by group that every worker has; the same as long as the session lasts."""
        if self._pools is None:
            self._pools = pools(self.plan, {worker: member.prefill for worker, member in self.members.items()})
        return self._pools

    def facts(self) -> dict[str, object]:
        """What will move, for the log: rows a block, regions and reads of all workers of the engine."""
        links = [member.links.of(None) for member in self.members.values() if member.reads and not self.push]
        entries = [entry for one in links for entry in one.entries]
        rows = sum(len(entry.page) or sum(len(one.table) for one in entry.token) for entry in entries)
        return {
            "engine": self.name,
            "run": self.engine.run,
            "decode_worker": self._home.worker,
            "plan": self.plan.digest,
            "mode": "push" if self.push else "pull",
            "workers": len(self.members),
            "reads": len(entries),
            "rows": rows,
            "regions": sum(len(member.prefill.regions) for member in self.members.values()),
        }

    def same(self, met: MetEngine, push: bool) -> bool:
        """Whether `met` is what is connected already: the same run, registration, plan and direction."""
        mine = [bare(member.card) for member in self.members.values()]
        theirs = [bare(card) for card, _ in met.workers]
        unbroken = all(member.line.broken() is None for member in self.members.values())
        return unbroken and push == self.push and met.plan.digest == self.plan.digest and mine == theirs

    def claim(
        self, member: PrefillConnection, requests: tuple[str, ...], fed: tuple[str, ...], tables: Named | None = None
    ) -> int:
        """Say that these requests are needed; the number of this claim. `tables` are prefill's, by request."""
        self._beat += 1
        member.line.send(Claim(self._beat, requests, fed, tables or {}))
        return self._beat

    def heartbeat_due(self, now: float) -> bool:
        """Whether it is time to renew the claims; once for each time that comes."""
        if now < self._next:
            return False
        self._next = now + self._lease / BEATS
        return True

    def learn(self, lease: float, now: float) -> None:
        """How long the peer's leases are, in seconds: claims must come more often."""
        if LEASES[0] <= lease <= LEASES[1] and lease != self._lease:
            self._lease, self._next = lease, min(self._next, now + lease / BEATS)

    def broken(self) -> KvplanError | None:
        """Why a worker of this engine can no longer be spoken to."""
        found = (member.line.broken() for member in self.members.values())
        return next((error for error in found if error is not None), None)

    def release(self) -> None:
        """Give the prepared lists back."""
        for member in self.members.values():
            member.links.release()

    def close(self) -> None:
        """Stop speaking to this engine."""
        for member in self.members.values():
            member.line.close()


def bare(card: WorkerCard) -> WorkerCard:
    """A card without what is new each time that it is shown."""
    return msgspec.structs.replace(card, nonce=b"")
