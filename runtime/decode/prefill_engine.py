"""A prefill engine that a decode worker is connected to: a line and prepared links for each of its workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Plan
from kvplan.runtime.control.card import EngineCard, WorkerCard, geometry
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.lines import PrefillLine
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import NotBegunError, TransferError
from kvplan.runtime.inspection import PrefillEngineState
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.protocol.loads import KnownEngine, PrefillPeer
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.staging.requested_images import RequestedImages
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import PairRules
from kvplan.runtime.transfer.prepared import PreparedLinks
from kvplan.runtime.transport.base import reach


@dataclass(frozen=True, slots=True)
class Peer:
    """A connected prefill engine: its name, its run, the plan for the pair, and the mode, pull or push."""

    name: str
    run: str
    plan: Plan = field(repr=False)
    mode: str


@dataclass(slots=True, eq=False)
class PrefillConnection:
    """The connection to one prefill worker, which the protocol has as `known`.

    `stage` is the worker's stage, if it packs. `images` are the pages that it writes through the stage here.
    """

    card: WorkerCard
    control: PrefillLine
    known: PrefillPeer
    links: PreparedLinks
    stage: PeerStage
    images: RequestedImages


class PrefillEngine:
    """A connected engine. `push` says that it writes; otherwise this side reads. `known` is set by `know`.

    Not safe to use from several threads.
    """

    known: KnownEngine

    def __init__(self, met: MetEngine, push: bool, endpoint: Endpoint, now: float) -> None:
        self.card: EngineCard = met.engine
        self.plan: Plan = met.plan
        self.push = push
        self.connections: dict[int, PrefillConnection] = {}
        self._endpoint, self._met = endpoint, now

    def add(self, card: WorkerCard, control: PrefillLine) -> None:
        """Add one worker, whose card was checked, to the transport, and prepare its links. Raises what these raise."""
        endpoint, remote = self._endpoint, geometry(card)
        local = endpoint.pool
        peer = endpoint.transport.add_peer(card.metadata)
        control.gather()
        stage = PeerStage(control.say, control.send, card.stage)
        links = endpoint.links(self.plan, (card.worker, local.worker), peer, remote, stage, push=False)
        blocks = shape.logical_blocks(remote, self.plan.prefill, card.worker)
        reads = any(read.worker == card.worker for read in self.plan.reads[local.worker])
        shard = self.plan.prefill.workers[card.worker].shard
        # Images of the pages that it writes through the stage here, the same as in its own links.
        images = RequestedImages(self.plan, local, endpoint.stage, card.worker, push=True)
        # Any thread may count bytes, even after the engine is lost, so the link counts them. A writer reports its own.
        size = partial(slices.size, links.of(None)) if reads and not self.push else lambda _: 0
        known = PrefillPeer(card.worker, peer, shard, reads, blocks, size)
        self.connections[card.worker] = PrefillConnection(card, control, known, links, stage, images)

    def know(self) -> None:
        """Set `known`, the facts that the protocol uses, after all workers were added."""
        plan, peers = self.plan, tuple(connection.known for connection in self.connections.values())
        groups = {group for peer in peers for group in peer.blocks}
        pools = {group: min(peer.blocks[group] for peer in peers if group in peer.blocks) for group in groups}
        pair = PairRules.of(plan, self._endpoint.worker, pools, self._endpoint.pool.blocks)
        self.known = KnownEngine(self.name, self.push, pair, peers, self._met, self._met)

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def peers(self) -> set[str]:
        """The transport's names of its workers."""
        return {connection.known.name for connection in self.connections.values()}

    def replanned(self, met: MetEngine, push: bool) -> bool:
        """Return whether `met` is this engine, unchanged but with another plan for the pair."""
        known = {worker: _registration(connection.card) for worker, connection in self.connections.items()}
        alike = all(known.get(card.worker, _registration(card)) == _registration(card) for card, _ in met.workers)
        alike = alike and met.engine.run == self.card.run
        return alike and self.broken() is None and push == self.push and met.plan.digest != self.plan.digest

    def same(self, met: MetEngine, push: bool) -> bool:
        """Return whether `met` is this engine, with the same run, registrations, plan and mode."""
        known = [_registration(connection.card) for connection in self.connections.values()]
        shown = [_registration(card) for card, _ in met.workers]
        return self.broken() is None and push == self.push and met.plan.digest == self.plan.digest and known == shown

    def reach(self) -> None:
        """Reconnect workers whose connection in the transport broke. Raises TransferError if that has to wait."""
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
        """Return this engine as callers see it."""
        return Peer(self.name, self.card.run, self.plan, self.mode)

    def inspected(self, status: str) -> PrefillEngineState:
        run, plan = self.card.run, self.plan.digest
        return PrefillEngineState(self.name, run, plan, self.mode, status, frozenset(self.peers))

    def broken(self) -> KvplanError | None:
        """Return the error of the first worker whose line is broken, or None."""
        for connection in self.connections.values():
            if (error := connection.control.broken()) is not None:
                return error
        return None

    def release(self) -> None:
        """Release the prepared lists."""
        for connection in self.connections.values():
            connection.links.release()

    def close(self) -> None:
        """Leave the lines to this engine."""
        for connection in self.connections.values():
            connection.control.leave()


def _registration(card: WorkerCard) -> tuple[object, ...]:
    """Return the facts that identify a registration of a worker's memory, and the fabrics that read it."""
    return card.worker, card.run, card.generation, card.fabrics
