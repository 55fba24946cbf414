"""Peers: the decode workers that a prefill worker has met, how they are spoken to, and the ways to their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

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
from kvplan.runtime.protocol.effects import WriteKey
from kvplan.runtime.protocol.pins import Claimant
from kvplan.runtime.protocol.readers import Reader, WriteTarget
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.transfer.demand import DemandRules
from kvplan.runtime.transfer.meter import Meter
from kvplan.runtime.transfer.mover import MoveEnds
from kvplan.runtime.transfer.prepare import PreparedLinks
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


class ReaderPeers:
    """All readers by ZeroMQ identity. `send` tells one of them something, which `flush` says before the round ends.

    The endpoint has the transport forget those that are removed.
    """

    def __init__(self, endpoint: Endpoint, send: Send, flush: Callable[[], None]) -> None:
        self._endpoint, self._send, self._flush = endpoint, send, flush
        self._all: dict[bytes, Reader] = {}
        self._links: dict[Reader, PushLinks] = {}

    def __iter__(self) -> Iterator[Reader]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, identity: bytes) -> Reader | None:
        return self._all.get(identity)

    def ends(self, key: WriteKey) -> MoveEnds:
        """The ways to a reader that is written to. Raises KeyError for any other."""
        links = self._links[key.reader]
        return MoveEnds(key.request, key.reader.key, links.peer, links.prepared, Meter())

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
        contract = expected(plan, self._endpoint.worker)
        if hello.card is None:
            reader = Reader(identity, hello.name, claimant, plan, contract)
        else:
            decode, peer = geometry(hello.card), self._endpoint.transport.add_peer(hello.card.metadata)
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
            self._endpoint.left.add(links.peer)

    def reach(self, reader: Reader) -> None:
        """Meet a decode worker's memory again, if its connection in the transport broke.

        Raises NotBegunError while writes by the connection before have not ended.
        """
        if (links := self._links.get(reader)) is not None:
            reach(self._endpoint.transport, links.peer, links.metadata)

    def linked(self) -> set[str]:
        """The transport's names of those that are written to."""
        return {links.peer for links in self._links.values()}

    def _send_at_once(self, reader: Reader, message: msgspec.Struct) -> None:
        """What was written can be copied there while the next piece is written."""
        self._send(reader, message)
        self._flush()

    def _target(self, peer: str, plan: Plan, worker: int, decode: Geometry) -> WriteTarget:
        blocks = shape.logical_blocks(decode, plan.decode, worker)
        return WriteTarget(peer, RequestRules(plan), DemandRules(plan, worker), self._endpoint.pool.blocks, blocks)

    def _linked_to(self, reader: Reader, card: WorkerCard, decode: Geometry) -> PushLinks:
        assert reader.target is not None
        plan, peer = reader.plan, reader.target.peer
        stage = PeerStage(partial(self._send, reader), partial(self._send_at_once, reader), card.stage)
        workers = self._endpoint.worker, reader.claimant.worker
        prepared = self._endpoint.links(plan, workers, peer, decode, stage, push=True)
        return PushLinks(peer, card.metadata, prepared, stage)


def expected(plan: Plan, worker: int) -> frozenset[int]:
    """The decode workers that tell prefill worker `worker` when they are done with a request."""
    return frozenset(number for number in range(len(plan.decode.workers)) if worker in contacts(plan, number))
