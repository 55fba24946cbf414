"""Peers: the decode workers that a prefill worker has met, how they are spoken to, and the ways to their memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.plan.request import RequestRules
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import Hello, Refusal, WorkerCard, geometry
from kvplan.runtime.control.handshake_server import PrefillFace, answer_hello, contacts, served_plan
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandshakeError, LeaseError
from kvplan.runtime.inspection import PeerStageState
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import PlanSource
from kvplan.runtime.protocol.effects import WriteKey
from kvplan.runtime.protocol.leases import Claimant
from kvplan.runtime.protocol.reader_table import ReaderTable
from kvplan.runtime.protocol.readers import Reader, WriteTarget
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.staging.requested_images import lending, requested_reads
from kvplan.runtime.transfer.demand import DemandRules, Meter
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
    """All readers by ZeroMQ identity, who are greeted as `identity`, by what `plans` returns now.

    `send` tells one of them something, which `flush` says before the step ends. `carry_out` does what the core's
    `readers` want done when one is met. The endpoint has the transport forget those that are removed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        plans: Callable[[], PlanSource],
        readers: ReaderTable,
        send: Send,
        flush: Callable[[], None],
        carry_out: Callable[[], None],
    ) -> None:
        self._endpoint, self._identity, self._plans = endpoint, identity, plans
        self._readers, self._send, self._flush, self._carry_out = readers, send, flush, carry_out
        self._all: dict[bytes, Reader] = {}
        self._connections = itertools.count()
        self._links: dict[Reader, PushLinks] = {}

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
        """The stages of all readers that are written to."""
        return tuple(links.stage.inspected(links.peer) for links in self._links.values())

    def greet(self, identity: bytes, hello: Hello) -> msgspec.Struct:
        """The card that a decode worker asked for, or why there is none. Raises nothing."""
        name = f"prefill worker {self._endpoint.worker}"
        if self._endpoint.asleep:
            return Refusal(HandshakeError.code, f"{name} is suspended", True, hello.nonce)
        if len(self._all) >= MOST:
            text = f"{name} has {len(self._all)} connections, the most that it takes"
            return Refusal(LeaseError.code, text, True, hello.nonce)
        face = self._face()
        answer = answer_hello(hello, face)
        if isinstance(answer, WorkerCard):
            answer = self._meet(identity, hello, face, answer)
        if isinstance(answer, Refusal):
            logs.event(logs.INFO, "peer refused", engine=hello.name, run=hello.run, error=answer.message)
        return answer

    def _face(self) -> PrefillFace:
        endpoint = self._endpoint
        return PrefillFace(
            identity=self._identity,
            side=endpoint.pool.side,
            worker=endpoint.worker,
            plans=self._plans(),
            generation=endpoint.generation,
            addresses=endpoint.addresses,
            geometry=endpoint.pool.geometry,
            metadata=endpoint.metadata,
            fabrics=endpoint.transport.fabrics,
        )

    def _meet(self, identity: bytes, hello: Hello, face: PrefillFace, card: WorkerCard) -> WorkerCard | Refusal:
        self._readers.introduce(identity, hello.name, hello.run)
        self._carry_out()
        try:
            reader = self._add(identity, hello, served_plan(hello, face))
            self._readers.meet(reader)
            return card if reader.target is not None else self._serving(reader, card)
        except KvplanError as error:
            if (met := self.get(identity)) is not None:
                self._readers.drop(met, "nothing can be packed for it")
                self._carry_out()
            return Refusal(error.code, str(error), False, hello.nonce)

    def _serving(self, reader: Reader, card: WorkerCard) -> WorkerCard:
        """The card for a decode worker, by which it reaches the stage where its plan has this worker pack.

        Raises what opening the stage raises, TransportError, RegisterError.
        """
        endpoint = self._endpoint
        reads = requested_reads(reader.plan, reader.claimant.worker, push=False, prefill_worker=endpoint.worker)
        return lending(card, endpoint.stage, endpoint.transport, reads)

    def _add(self, identity: bytes, hello: Hello, plan: Plan) -> Reader:
        """Take a connection whose hello was answered with a card. Raises TransportError for one that cannot be met."""
        claimant = Claimant(hello.run, plan.digest, hello.worker, next(self._connections))
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
            self._endpoint.unneeded_peers.add(links.peer)

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
        """Send now: the reader copies this piece while the next one is written."""
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
