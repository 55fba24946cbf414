"""Reader peers: connections to decode workers, and the links to the memory of those that are written to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from kvplan.plan.errors import KvplanError
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
from kvplan.runtime.protocol.holds import Claimant
from kvplan.runtime.protocol.reader_table import ReaderTable
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.staging.requested_images import lending, requested_reads
from kvplan.runtime.transfer.demand import Meter, PairRules
from kvplan.runtime.transfer.executor import MoveEnds
from kvplan.runtime.transfer.prepared import PreparedLinks
from kvplan.runtime.transport.base import reach

Send = Callable[[Reader, msgspec.Struct], None]
MOST = 4096


@dataclass(frozen=True, slots=True)
class PushLinks:
    """The links to the memory of a decode worker that is written to. Its `stage` lends buffers.

    `peer` is its name in the transport, which was given its `metadata`.
    """

    peer: str
    metadata: bytes
    prepared: PreparedLinks
    stage: PeerStage


class ReaderPeers:
    """All readers by ZeroMQ identity. Greetings name `identity`, and use the plans that `plans` returns then.

    `send` queues a message to a reader, `flush` sends it before the step ends. `carry_out` carries out the outputs of
    the core's `readers` when one is met. The endpoint has the transport forget removed readers.
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
        """Return the ends of a write: its reader's links. Raises KeyError for a reader that is not written to."""
        links = self._links[key.reader]
        return MoveEnds(key.request, key.reader.key, links.peer, links.prepared, Meter())

    def stage(self, reader: Reader) -> PeerStage | None:
        """Return the stage of a reader that is written to, None for any other."""
        return self._links[reader].stage if reader in self._links else None

    def name(self, reader: Reader) -> str | None:
        """Return the transport's name of a reader that is written to, None for any other."""
        return self._links[reader].peer if reader in self._links else None

    def stages(self) -> tuple[PeerStageState, ...]:
        """Return the states of the stages of all readers that are written to."""
        return tuple(links.stage.inspected(links.peer) for links in self._links.values())

    def greet(self, identity: bytes, hello: Hello) -> msgspec.Struct:
        """Return the card that a decode worker asked for, or a refusal. Raises nothing."""
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
            return card if reader.writes is not None else self._serving(reader, card)
        except KvplanError as error:
            if (met := self.get(identity)) is not None:
                self._readers.drop(met, "nothing can be packed for it")
                self._carry_out()
            return Refusal(error.code, str(error), False, hello.nonce)

    def _serving(self, reader: Reader, card: WorkerCard) -> WorkerCard:
        """Return the card for a decode worker that reads; it names the stage if the plan has this worker pack.

        Raises what opening the stage raises, TransportError, RegisterError.
        """
        endpoint = self._endpoint
        reads = requested_reads(reader.plan, reader.claimant.worker, push=False, prefill_worker=endpoint.worker)
        return lending(card, endpoint.stage, endpoint.transport, reads)

    def _add(self, identity: bytes, hello: Hello, plan: Plan) -> Reader:
        """Add the reader of a connection whose hello is accepted. Raises TransportError if its memory is refused."""
        claimant = Claimant(hello.run, plan.digest, hello.worker, next(self._connections))
        contract = expected(plan, self._endpoint.worker)
        if hello.card is None:
            reader = Reader(identity, hello.name, claimant, plan, contract)
        else:
            decode, peer = geometry(hello.card), self._endpoint.transport.add_peer(hello.card.metadata)
            blocks = shape.logical_blocks(decode, plan.decode, hello.worker)
            pair = PairRules.of(plan, hello.worker, self._endpoint.pool.blocks, blocks)
            reader = Reader(identity, hello.name, claimant, plan, contract, pair)
            self._links[reader] = self._linked_to(reader, peer, hello.card, decode)
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
        """Reconnect to a decode worker's memory, if its connection in the transport broke.

        Raises NotBegunError while writes over the broken connection have not ended.
        """
        if (links := self._links.get(reader)) is not None:
            reach(self._endpoint.transport, links.peer, links.metadata)

    def linked(self) -> set[str]:
        """Return the transport's names of the readers that are written to."""
        return {links.peer for links in self._links.values()}

    def _send_at_once(self, reader: Reader, message: msgspec.Struct) -> None:
        """Send a message now, so that the reader copies this piece while the next one is written."""
        self._send(reader, message)
        self._flush()

    def _linked_to(self, reader: Reader, peer: str, card: WorkerCard, decode: Geometry) -> PushLinks:
        stage = PeerStage(partial(self._send, reader), partial(self._send_at_once, reader), card.stage)
        workers = self._endpoint.worker, reader.claimant.worker
        prepared = self._endpoint.links(reader.plan, workers, peer, decode, stage, push=True)
        return PushLinks(peer, card.metadata, prepared, stage)


def expected(plan: Plan, worker: int) -> frozenset[int]:
    """Return the decode workers that say Done to prefill worker `worker` for each request."""
    return frozenset(number for number in range(len(plan.decode.workers)) if worker in contacts(plan, number))
