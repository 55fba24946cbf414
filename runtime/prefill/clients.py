"""The decode workers that a prefill worker has met: who they are, what they claim, how they are written to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvplan.plan.types import Plan
from kvplan.runtime.control.card import Hello, WorkerCard, geometry
from kvplan.runtime.control.handshake_checks import named
from kvplan.runtime.control.wire import Wired, unpack
from kvplan.runtime.errors import CardError, TransportError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.lease import Claimant
from kvplan.runtime.prefill.source import SourceRequest
from kvplan.runtime.transfer.links import Links
from kvplan.runtime.transfer.prepare import link
from kvplan.runtime.transport.base import Transport

MOST = 4096
MOST_CLAIMS = 1 << 14


@dataclass(slots=True, eq=False)
class DecodeClient:
    """One connection of a decode worker. `card` is its memory where the pair pushes, `peer` its name in the transport.

    `claims` are the requests it needs, and whether in chunks; `told` how many chunks it was told of. `heard` is when
    it last spoke, in seconds, `beat` the number of its last claim. `checked` are the holds whose blocks it named.
    """

    identity: bytes
    name: str
    claimant: Claimant
    plan: Plan
    contract: frozenset[int]
    heard: float
    card: WorkerCard | None = None
    peer: str = ""
    decode: Geometry | None = None
    links: Links | None = None
    heartbeat: int = 0
    claims: dict[str, bool] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A name of this connection."""
        return f"{self.name}/{self.claimant.worker}/{self.identity.hex()}"

    def claim(self, request: str, fed: bool) -> bool:
        """Note that a request is needed; False where too many are."""
        if request not in self.claims and len(self.claims) >= MOST_CLAIMS:
            return False
        self.claims[request] = fed
        return True

    def unlike(self, stock: SourceRequest, named: Wired | None) -> str:
        """Why the blocks that decode names are not those of a hold; empty where they are, or only decode knows them."""
        if stock.tables is None or self.checked.get(stock.request) == stock.hold:
            return ""
        try:
            why = "it was claimed for another hold" if named is None else stock.differs(unpack(named))
        except CardError as error:
            why = str(error)
        if not why:
            self.checked[stock.request] = stock.hold
        return why and f"unlike: {why}"

    def forget(self, request: str) -> None:
        self.claims.pop(request, None)
        self.told.pop(request, None)
        self.checked.pop(request, None)


class DecodeClients:
    """All connections by ZeroMQ identity. A new run of a decode engine replaces the guests of the run before."""

    def __init__(self, worker: int, geometry: Geometry, transport: Transport) -> None:
        self._worker, self._geometry, self._transport = worker, geometry, transport
        self._all: dict[bytes, DecodeClient] = {}
        self._left = set[str]()

    def __iter__(self) -> Iterator[DecodeClient]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, identity: bytes) -> DecodeClient | None:
        return self._all.get(identity)

    def full(self) -> bool:
        """Whether no more connections are taken."""
        return len(self._all) >= MOST

    def before(self, hello: Hello) -> list[DecodeClient]:
        """The guests of earlier runs of the engine that says hello."""
        return [one for one in self if one.name == hello.name and one.claimant.run != hello.run]

    def add(self, identity: bytes, hello: Hello, plan: Plan, now: float) -> DecodeClient:
        """Take a connection whose hello was answered with a card. Raises TransportError for one that cannot be met."""
        claimant = Claimant(hello.run, plan.digest, hello.worker)
        guest = DecodeClient(identity, hello.name, claimant, plan, expected(plan, self._worker), now, hello.card)
        if hello.card is not None:
            guest.peer = self._transport.add_peer(hello.card.metadata)
            guest.decode = geometry(hello.card)
            ends = self._worker, hello.worker, guest.peer, self._transport, self._geometry, guest.decode
            guest.links = Links(lambda layers: link(plan, *ends, push=True, layers=layers))
        self._all[identity] = guest
        facts = {"engine": hello.name, "run": hello.run, "worker": hello.worker, "plan": plan.digest}
        logs.event(logs.INFO, "peer met", **facts, mode="push" if hello.card else "pull")
        return guest

    def others(self, guest: DecodeClient) -> list[DecodeClient]:
        """Other connections of the same decode worker."""
        return [one for one in self if one.claimant == guest.claimant and one is not guest]

    def remove(self, guest: DecodeClient) -> None:
        """Forget a connection; its memory follows with `sweep`."""
        if self._all.get(guest.identity) is guest:
            del self._all[guest.identity]
        if guest.links is not None:
            guest.links.release()
        if guest.peer:
            self._left.add(guest.peer)

    def sweep(self, busy: set[str]) -> None:
        """Have the transport forget those who left, unless another connection, or something under way, needs them."""
        if not self._left:
            return
        for peer in sorted(self._left - busy - {other.peer for other in self}):
            self._left.discard(peer)
            try:
                self._transport.remove_peer(peer)
            except TransportError as error:
                logs.event(logs.WARNING, "removal failed", peer=peer, error=error)
        self._left &= busy


def expected(plan: Plan, worker: int) -> frozenset[int]:
    """The decode workers that tell prefill worker `worker` when they are done with a request."""
    return frozenset(number for number in range(len(plan.decode.workers)) if worker in named(plan, number))
