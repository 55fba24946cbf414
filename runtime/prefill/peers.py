"""Peers: the decode workers that a prefill worker has met, how they are spoken to, and the ways to their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from kvplan.plan.request import RequestRules
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import Hello, WorkerCard, geometry
from kvplan.runtime.control.handshake_server import contacts
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.inspection import PeerStageState
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.protocol.pins import Claimant
from kvplan.runtime.protocol.readers import Reader, WriteTarget
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.transfer.demand import DemandRules
from kvplan.runtime.transfer.prepare import PreparedLink, PreparedLinks, link
from kvplan.runtime.transport.base import reach

Send = Callable[[Reader, msgspec.Struct], None]
MOST = 4096


@dataclass(frozen=True, slots=True)
class PushLinks:
    """The ways to the memory of a decode worker that is written to. Its `stage` lends buffers.

    The transport knows it as `peer`, and has met it by its `metadata`.
    """

    peer: str
    metadata: bytes
    prepared: PreparedLinks
    stage: PeerStage


@dataclass(frozen=True, slots=True)
class ReaderControl:
    """How prefill speaks to a decode worker whose stage it uses; one that cannot be reached is lost."""

    reader: Reader
    tell: Send
    flush: Callable[[], None]

    def say(self, message: msgspec.Struct) -> None:
        self.tell(self.reader, message)

    def send(self, message: msgspec.Struct) -> bool:
        """At once: what was written can be copied there while the next one is."""
        self.tell(self.reader, message)
        self.flush()
        return True


class ReaderPeers:
    """All readers by ZeroMQ identity. `send` tells one of them something, which `flush` says before the round ends.

    The endpoint has the transport forget those that are removed.
    """

    def __init__(self, endpoint: Endpoint, send: Send, flush: Callable[[], None]) -> None:
        self._pool, self._transport, self._stage = endpoint.pool, endpoint.transport, endpoint.stage
        self._left, self._send, self._flush = endpoint.left, send, flush
        self._all: dict[bytes, Reader] = {}
        self._links: dict[Reader, PushLinks] = {}

    def __iter__(self) -> Iterator[Reader]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, identity: bytes) -> Reader | None:
        return self._all.get(identity)

    def links(self, reader: Reader) -> PushLinks:
        """The ways to a reader that is written to. Raises KeyError for any other."""
        return self._links[reader]

    def stage(self, reader: Reader) -> PeerStage | None:
        """The stage of a reader that is written to."""
        return self._links[reader].stage if reader in self._links else None

    def stages(self) -> tuple[PeerStageState, ...]:
        """What the stages of all readers lend that are written to."""
        return tuple(links.stage.inspected(links.peer) for links in self._links.values())

    def full(self) -> bool:
        """Whether no more connections are taken."""
        return len(self._all) >= MOST

    def add(self, identity: bytes, hello: Hello, plan: Plan) -> Reader:
        """Take a connection whose hello was answered with a card. Raises TransportError for one that cannot be met."""
        claimant = Claimant(hello.run, plan.digest, hello.worker)
        contract = expected(plan, self._pool.worker)
        if hello.card is None:
            reader = Reader(identity, hello.name, claimant, plan, contract)
        else:
            decode, peer = geometry(hello.card), self._transport.add_peer(hello.card.metadata)
            target = self._target(peer, plan, hello.worker, decode)
            reader = Reader(identity, hello.name, claimant, plan, contract, target)
            self._links[reader] = self._linked_to(reader, hello.card, decode)
        self._all[identity] = reader
        facts = {"engine": hello.name, "run": hello.run, "worker": hello.worker, "plan": plan.digest}
        logs.event(logs.INFO, "peer met", **facts, mode="push" if hello.card else "pull")
        return reader

    def remove(self, reader: Reader) -> None:
        """Forget a reader."""
        if self._all.get(reader.identity) is reader:
            del self._all[reader.identity]
        if (links := self._links.pop(reader, None)) is not None:
            links.prepared.release()
            self._left.add(links.peer)

    def reach(self, reader: Reader) -> None:
        """Meet a decode worker's memory again, if its connection in the transport broke.

        Raises NotBegunError while writes by the connection before have not ended.
        """
        if (links := self._links.get(reader)) is not None:
            reach(self._transport, links.peer, links.metadata)

    def linked(self) -> set[str]:
        """The transport's names of those that are written to."""
        return {links.peer for links in self._links.values()}

    def _target(self, peer: str, plan: Plan, worker: int, decode: Geometry) -> WriteTarget:
        blocks = shape.logical_blocks(decode, plan.decode, worker)
        return WriteTarget(peer, RequestRules(plan), DemandRules(plan, worker), self._pool.blocks, blocks)

    def _linked_to(self, reader: Reader, card: WorkerCard, decode: Geometry) -> PushLinks:
        assert reader.target is not None
        plan, peer = reader.plan, reader.target.peer
        stage = PeerStage(ReaderControl(reader, self._send, self._flush), card.stage)
        workers, geometries = (self._pool.worker, reader.claimant.worker), (self._pool.geometry, decode)
        ends = PreparedLink(*workers, peer, True, *geometries, stage=self._stage, peer_stage=stage)
        prepared = PreparedLinks(lambda layers: link(plan, replace(ends, layers=layers), self._transport))
        return PushLinks(peer, card.metadata, prepared, stage)


def expected(plan: Plan, worker: int) -> frozenset[int]:
    """The decode workers that tell prefill worker `worker` when they are done with a request."""
    return frozenset(number for number in range(len(plan.decode.workers)) if worker in contacts(plan, number))
