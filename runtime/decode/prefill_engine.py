"""A prefill engine that a decode worker has met: its workers, how they are spoken to, what is prepared for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from kvplan.plan.errors import KvplanError
from kvplan.plan.request import RequestRules
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import EngineCard, WorkerCard, geometry
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.lines import PrefillLine
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import NotBegunError, TransferError
from kvplan.runtime.inspection import PrefillEngineState
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.protocol.loads import KnownEngine, PairRules, PrefillPeer
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.staging.requested_images import RequestedImages
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import DemandRules
from kvplan.runtime.transfer.prepare import PreparedLinks
from kvplan.runtime.transport.base import reach


@dataclass(frozen=True, slots=True)
class Peer:
    """A prefill engine that is connected: its name, this run of it, the plan for the pair, who moves: pull or push."""

    name: str
    run: str
    plan: Plan = field(repr=False)
    mode: str


@dataclass(slots=True, eq=False)
class PrefillConnection:
    """One prefill worker, as the protocol has it `known`.

    `stage` is where it packs, if it does. `images` are of what it writes by way of the stage here.
    """

    card: WorkerCard
    control: PrefillLine
    known: PrefillPeer
    links: PreparedLinks
    stage: PeerStage
    images: RequestedImages


class PrefillEngine:
    """A met engine. `push` says that it writes; otherwise this side reads. It is `known` once all workers are met.

    Not safe from threads.
    """

    known: KnownEngine

    def __init__(self, met: MetEngine, push: bool, endpoint: Endpoint, now: float) -> None:
        self.card: EngineCard = met.engine
        self.plan: Plan = met.plan
        self.push = push
        self.connections: dict[int, PrefillConnection] = {}
        self._endpoint, self._met = endpoint, now

    def add(self, card: WorkerCard, control: PrefillLine) -> None:
        """Meet one worker, whose card was checked: tell the transport, prepare. Raises what any of these raises."""
        endpoint, remote = self._endpoint, geometry(card)
        local = endpoint.pool
        peer = endpoint.transport.add_peer(card.metadata)
        control.gather()
        stage = PeerStage(control.say, control.send, card.stage)
        links = endpoint.links(self.plan, (card.worker, local.worker), peer, remote, stage, push=False)
        blocks = shape.logical_blocks(remote, self.plan.prefill, card.worker)
        reads = any(read.worker == card.worker for read in self.plan.reads[local.worker])
        shard = self.plan.prefill.workers[card.worker].shard
        # Images of what it writes through the stage here, as its own links have them.
        images = RequestedImages(self.plan, local, endpoint.stage, card.worker, push=True)
        # Bytes may be counted by any thread, also after the engine was lost: by the prepared link. A writer says them.
        size = partial(slices.size, links.of(None)) if reads and not self.push else lambda _: 0
        known = PrefillPeer(card.worker, peer, shard, reads, blocks, size)
        self.connections[card.worker] = PrefillConnection(card, control, known, links, stage, images)

    def know(self) -> None:
        """All workers are met: this is what the protocol knows of them."""
        plan, peers = self.plan, tuple(connection.known for connection in self.connections.values())
        groups = {group for peer in peers for group in peer.blocks}
        pools = {group: min(peer.blocks[group] for peer in peers if group in peer.blocks) for group in groups}
        pair = PairRules(plan, RequestRules(plan), DemandRules(plan, self._endpoint.worker), pools)
        self.known = KnownEngine(self.name, self.push, pair, peers, self._met, self._met)

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def peers(self) -> set[str]:
        """The transport's names of its workers."""
        return {connection.known.name for connection in self.connections.values()}

    def replanned(self, met: MetEngine, push: bool) -> bool:
        """Whether `met` is what is connected, by another plan for the pair."""
        known = {worker: _registration(connection.card) for worker, connection in self.connections.items()}
        alike = all(known.get(card.worker, _registration(card)) == _registration(card) for card, _ in met.workers)
        alike = alike and met.engine.run == self.card.run
        return alike and self.broken() is None and push == self.push and met.plan.digest != self.plan.digest

    def same(self, met: MetEngine, push: bool) -> bool:
        """Whether `met` is what is connected already: the same run, registration, plan and direction."""
        known = [_registration(connection.card) for connection in self.connections.values()]
        shown = [_registration(card) for card, _ in met.workers]
        return self.broken() is None and push == self.push and met.plan.digest == self.plan.digest and known == shown

    def reach(self) -> None:
        """Meet workers again whose connection in the transport broke. Raises TransferError where that has to wait."""
        for connection in self.connections.values():
            try:
                reach(self._endpoint.transport, connection.known.name, connection.card.metadata)
            except NotBegunError as error:
                text = f"prefill worker {connection.known.worker} of {self.name!r} cannot be reached: {error}"
                raise TransferError(text) from error

    @property
    def mode(self) -> str:
        return "push" if self.push else "pull"

    def as_peer(self) -> Peer:
        """This engine as callers see it."""
        return Peer(self.name, self.card.run, self.plan, self.mode)

    def inspected(self, status: str) -> PrefillEngineState:
        run, plan = self.card.run, self.plan.digest
        return PrefillEngineState(self.name, run, plan, self.mode, status, frozenset(self.peers))

    def broken(self) -> KvplanError | None:
        """Why a worker of this engine can no longer be spoken to."""
        for connection in self.connections.values():
            if (error := connection.control.broken()) is not None:
                return error
        return None

    def release(self) -> None:
        """Give the prepared lists back."""
        for connection in self.connections.values():
            connection.links.release()

    def close(self) -> None:
        """Stop speaking to this engine."""
        for connection in self.connections.values():
            connection.control.leave()


def _registration(card: WorkerCard) -> tuple[object, ...]:
    """Which registration of which worker's memory a card is of, and over what that is read."""
    return card.worker, card.run, card.generation, card.fabrics
