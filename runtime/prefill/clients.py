"""Decode clients: the decode workers that a prefill worker has met, what they claim, how they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from kvplan.plan.request import RequestRules
from kvplan.plan.types import Interval, Plan
from kvplan.runtime.control.card import Hello, WorkerCard, geometry
from kvplan.runtime.control.handshake_checks import contacts
from kvplan.runtime.control.messages import WireTables, unpack
from kvplan.runtime.errors import CardError, TransportError
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.lease import Claimant
from kvplan.runtime.prefill.source import SourceRequest
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.transfer.demand import DemandRules
from kvplan.runtime.transfer.prepare import PreparedLinks, link
from kvplan.runtime.transport.base import Transport, reach

Send = Callable[["DecodeClient", msgspec.Struct], None]
MOST = 4096
MOST_CLAIMS = 1 << 14


@dataclass(slots=True)
class ClientClaim:
    """A request that a decode worker needs: in chunks where it is `streamed`, otherwise as a whole.

    `announced` chunks were told, None before it was told that the request is kept. `told` are the blocks that it was
    told of, until they are compared: `checked` is the pin that has them. `asked` are the tokens that it reads, if any:
    `tiled` is the pin whose chunks are all of them. One that is `early` was claimed before the request was held: nobody
    else bounds such names, so that of each no more than the name is kept.
    """

    streamed: bool
    early: bool = False
    announced: int | None = None
    checked: int | None = None
    tiled: int | None = None
    told: WireTables | None = None
    asked: Interval | None = None

    def name(self, told: WireTables, asked: Interval | None) -> None:
        """It is claimed with its blocks, maybe anew."""
        self.told, self.asked, self.tiled, self.early = told, asked, None, False

    def wait(self) -> None:
        """The request is not held: its blocks are to be named when it is."""
        self.told, self.asked, self.early = None, None, not self.streamed

    def unlike(self, source: SourceRequest) -> str:
        """Why the blocks that decode was told of are not those held; empty where they are, or only decode knows."""
        if self.told is None:
            known = self.checked == source.pin or not source.names_all
            return "" if known else "it was claimed for another hold"
        try:
            why = source.differs(unpack(self.told))
        except CardError as error:
            why = str(error)
        if not why:
            self.checked, self.told = source.pin, None
        return why

    def untiled(self, source: SourceRequest, plan: Plan, worker: int) -> str:
        """Why the chunks of a source that is whole are not all that is asked for; empty where they are."""
        if self.asked is None or self.tiled == source.pin:
            return ""
        why = source.untiled(plan, worker, self.asked)
        if not why:
            self.tiled = source.pin
        return why


@dataclass(frozen=True, slots=True)
class PushTarget:
    """A decode worker that is written to: its name in the transport, the links to its memory, what it lends buffers of.

    The transport has met it by its `metadata`. Requests are checked and matched by `rules` and `demands`, looked up
    once, and by its `blocks`.
    """

    peer: str
    metadata: bytes
    links: PreparedLinks
    stage: PeerStage
    rules: RequestRules
    demands: DemandRules
    blocks: Mapping[str, int]


@dataclass(slots=True, eq=False)
class DecodeClient:
    """One connection of a decode worker. `heard` is when it last spoke, in seconds, `heartbeat` its last claim.

    `untold` are the requests that it was not told everything of, as its line took no more.

    It is written to as `push` has it, None where the pair pulls.
    """

    identity: bytes
    name: str
    claimant: Claimant
    plan: Plan
    contract: frozenset[int]
    heard: float
    push: PushTarget | None = None
    most_claims: int = MOST_CLAIMS
    heartbeat: int = 0
    claims: dict[str, ClientClaim] = field(default_factory=dict)
    untold: dict[str, None] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A name of this connection."""
        return f"{self.name}/{self.claimant.worker}/{self.identity.hex()}"

    def claim(
        self, request: str, streamed: bool, told: WireTables | None, asked: Interval | None
    ) -> ClientClaim | None:
        """Note that a request is needed, and the blocks and tokens that it names anew; None where too many are."""
        if request not in self.claims and len(self.claims) >= self.most_claims:
            return None
        claim = self.claims.setdefault(request, ClientClaim(streamed))
        claim.streamed = streamed
        if told is not None:
            claim.name(told, asked)
        return claim

    def forget(self, request: str) -> None:
        self.claims.pop(request, None)


@dataclass(frozen=True, slots=True)
class ClientControl:
    """How a decode worker is spoken to whose stage is used; one that cannot be told is gone."""

    client: DecodeClient
    tell: Send
    flush: Callable[[], None]

    def say(self, message: msgspec.Struct) -> None:
        self.tell(self.client, message)

    def send(self, message: msgspec.Struct) -> bool:
        """At once: what was written can be copied there while the next one is."""
        self.tell(self.client, message)
        self.flush()
        return True


class DecodeClients:
    """All connections by ZeroMQ identity. A new run of a decode engine replaces the clients of the run before.

    Each may claim as many requests as this worker may hold, and 16,384 at least. `send` tells one of them something,
    which `flush` says before the round ends.
    """

    def __init__(
        self,
        pool: Pool,
        transport: Transport,
        requests: int,
        send: Send,
        flush: Callable[[], None],
        stage: Stage | None = None,
    ) -> None:
        self._pool, self._transport, self._most_claims = pool, transport, max(MOST_CLAIMS, requests)
        self._send, self._flush, self._stage = send, flush, stage
        self._all: dict[bytes, DecodeClient] = {}
        self._left = set[str]()

    def __iter__(self) -> Iterator[DecodeClient]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def met(self) -> frozenset[str]:
        """The peers that the transport knows because of clients, those that left included until they are forgotten."""
        return frozenset(self._left.union(client.push.peer for client in self if client.push))

    def get(self, identity: bytes) -> DecodeClient | None:
        return self._all.get(identity)

    def full(self) -> bool:
        """Whether no more connections are taken."""
        return len(self._all) >= MOST

    def replaced_by(self, hello: Hello) -> list[DecodeClient]:
        """The clients of earlier runs of the engine that says hello."""
        return [client for client in self if client.name == hello.name and client.claimant.run != hello.run]

    def add(self, identity: bytes, hello: Hello, plan: Plan, now: float) -> DecodeClient:
        """Take a connection whose hello was answered with a card. Raises TransportError for one that cannot be met."""
        worker, claimant = self._pool.worker, Claimant(hello.run, plan.digest, hello.worker)
        client = DecodeClient(identity, hello.name, claimant, plan, expected(plan, worker), now)
        client.most_claims = self._most_claims
        if hello.card is not None:
            client.push = self._target(client, hello.card)
        self._all[identity] = client
        facts = {"engine": hello.name, "run": hello.run, "worker": hello.worker, "plan": plan.digest}
        logs.event(logs.INFO, "peer met", **facts, mode="push" if hello.card else "pull")
        return client

    def others(self, client: DecodeClient) -> list[DecodeClient]:
        """Other connections of the same decode worker."""
        return [other for other in self if other.claimant.is_worker(client.claimant) and other is not client]

    def remove(self, client: DecodeClient) -> None:
        """Forget a connection; its memory follows with `sweep`."""
        if self._all.get(client.identity) is client:
            del self._all[client.identity]
        if client.push is not None:
            client.push.links.release()
            self._left.add(client.push.peer)

    def reach(self, client: DecodeClient) -> None:
        """Meet a decode worker's memory anew, if its connection in the transport broke.

        Raises NotBegunError while writes by the connection before have not ended.
        """
        if client.push is not None:
            reach(self._transport, client.push.peer, client.push.metadata)

    def sweep(self, busy: set[str]) -> None:
        """Have the transport forget those who left, unless another connection, or something under way, needs them."""
        if not self._left:
            return
        for peer in sorted(self._left - busy - {client.push.peer for client in self if client.push}):
            self._left.discard(peer)
            try:
                self._transport.remove_peer(peer)
            except TransportError as error:
                logs.event(logs.WARNING, "removal failed", peer=peer, error=error)
        self._left &= busy

    def _target(self, client: DecodeClient, card: WorkerCard) -> PushTarget:
        plan, worker, decode = client.plan, client.claimant.worker, geometry(card)
        peer = self._transport.add_peer(card.metadata)
        stage = PeerStage(ClientControl(client, self._send, self._flush), card.stage)
        links = PreparedLinks(
            lambda layers: link(
                plan,
                prefill_worker=self._pool.worker,
                decode_worker=worker,
                peer=peer,
                transport=self._transport,
                prefill=self._pool.geometry,
                decode=decode,
                push=True,
                layers=layers,
                stage=self._stage,
                peer_stage=stage,
            )
        )
        blocks = shape.logical_blocks(decode, plan.decode, worker)
        return PushTarget(peer, card.metadata, links, stage, RequestRules(plan), DemandRules(plan, worker), blocks)


def expected(plan: Plan, worker: int) -> frozenset[int]:
    """The decode workers that tell prefill worker `worker` when they are done with a request."""
    return frozenset(number for number in range(len(plan.decode.workers)) if worker in contacts(plan, number))
