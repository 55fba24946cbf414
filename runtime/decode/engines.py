"""Prefill engines that a decode worker has met: their workers, how they are spoken to, what is prepared for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.plan.request import RequestRules
from kvplan.plan.types import Plan, Runs
from kvplan.runtime.control.card import EngineCard, WorkerCard, geometry
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.lines import PrefillLine
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandshakeError, NotBegunError, TransferError
from kvplan.runtime.inspection import PeerStageState, PrefillEngineState
from kvplan.runtime.memory import geometry as shape
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.ops import logs
from kvplan.runtime.protocol.loads import KnownEngine, PairRules, PrefillPeer
from kvplan.runtime.staging.asked import AskedImages
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import DemandRules, pools
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
    prefill: Geometry
    known: PrefillPeer
    links: PreparedLinks
    stage: PeerStage
    images: AskedImages


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
        """Meet one worker: check its memory, tell the transport, prepare. Raises what any of these raises."""
        endpoint, remote = self._endpoint, geometry(card)
        local = endpoint.pool
        shape.check(remote, self.plan.prefill, card.worker)
        peer = endpoint.transport.add_peer(card.metadata)
        control.gather()
        stage = PeerStage(control.say, control.send, card.stage)
        links = endpoint.links(self.plan, (card.worker, local.worker), peer, remote, stage, push=False)
        blocks = shape.logical_blocks(remote, self.plan.prefill, card.worker)
        reads = any(read.worker == card.worker for read in self.plan.reads[local.worker])
        shard = self.plan.prefill.workers[card.worker].shard
        # Images of what it writes through the stage here, as its own links have them.
        images = AskedImages(self.plan, local, endpoint.stage, card.worker, push=True)
        # Bytes may be counted by any thread, also after the engine was lost: by the prepared link.
        size = partial(slices.size, links.of(None)) if reads and not self.push else _none
        known = PrefillPeer(card.worker, peer, shard, reads, blocks, size)
        self.connections[card.worker] = PrefillConnection(card, control, remote, known, links, stage, images)

    def know(self) -> None:
        """All workers are met: this is what the protocol knows of them."""
        plan, geometries = self.plan, {worker: one.prefill for worker, one in self.connections.items()}
        demands = DemandRules(plan, self._endpoint.worker)
        pair = PairRules(plan, RequestRules(plan), demands, pools(plan, geometries))
        peers = tuple(connection.known for connection in self.connections.values())
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
        known = {worker: planless(connection.card) for worker, connection in self.connections.items()}
        shown = [planless(card) for card, _ in met.workers]
        alike = all(known.get(card.worker, card) == card for card in shown) and met.engine.run == self.card.run
        return alike and self.broken() is None and push == self.push and met.plan.digest != self.plan.digest

    def same(self, met: MetEngine, push: bool) -> bool:
        """Whether `met` is what is connected already: the same run, registration, plan and direction."""
        known = [bare(connection.card) for connection in self.connections.values()]
        shown = [bare(card) for card, _ in met.workers]
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


class PrefillEngines:
    """Engines by name, `live`; those `replanned`, whose requests end by the plan before; and those `retired`.

    Retired engines are dropped, and something may still be in progress from them. When one is closed, the endpoint has
    the transport forget its peers.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.live: dict[str, PrefillEngine] = {}
        # Those that are live, by name, for any thread.
        self.known = tuple[PrefillEngine, ...]()
        # All of them, those that are dropped with others first: what they have said counts before that.
        self.every = tuple[PrefillEngine, ...]()
        # How the workers of engines that are served are spoken to.
        self.lines = tuple[PrefillLine, ...]()
        self.replanned: list[PrefillEngine] = []
        self.retired: list[PrefillEngine] = []
        self._endpoint, self._left = endpoint, endpoint.left
        self._connections: dict[PrefillPeer, PrefillConnection] = {}

    def peers(self) -> set[str]:
        """The transport's names of all their workers."""
        return {peer for engine in self.every for peer in engine.peers}

    def served(self) -> list[PrefillEngine]:
        """The engines that requests may be in progress from."""
        return [*self.live.values(), *self.replanned]

    def of(self, engine: PrefillEngine) -> list[PrefillEngine]:
        """An engine, and where it is live those of its name that another plan replaced."""
        named = [other for other in self.replanned if other.name == engine.name]
        return [engine, *named] if self.live.get(engine.name) is engine else [engine]

    def is_served(self, engine: PrefillEngine) -> bool:
        return any(engine is other for other in self.served())

    def connection(self, peer: PrefillPeer) -> PrefillConnection:
        """How a worker is spoken to, until nothing is in progress from its engine any more."""
        return self._connections[peer]

    def whose(self, known: KnownEngine) -> PrefillEngine:
        """The engine that the protocol knows as this."""
        return next(engine for engine in self.every if engine.known is known)

    def add(self, met: MetEngine, push: bool, now: float) -> PrefillEngine:
        """An engine that was met, which has none of its name before it. Raises what adding a worker raises."""
        engine = PrefillEngine(met, push, self._endpoint, now)
        try:
            for card, control in met.workers:
                engine.add(card, control)
            engine.know()
        except BaseException:
            met.close()
            self._left |= engine.peers
            self.retire(engine)
            # Its lines are given back, and may be somebody's by now.
            engine.connections.clear()
            self._publish()
            raise
        self.live[engine.name] = engine
        self._connections |= {connection.known: connection for connection in engine.connections.values()}
        self._publish()
        facts = {"engine": engine.name, "run": engine.card.run, "plan": engine.plan.digest}
        logs.event(logs.INFO, "peer met", **facts, mode=engine.mode, workers=len(engine.connections))
        return engine

    def stages(self) -> Iterator[PeerStageState]:
        """What the stages of all their workers lend."""
        every = (connection for engine in self.every for connection in engine.connections.values())
        return (connection.stage.inspected(connection.known.name) for connection in every)

    def inspected(self) -> Iterator[PrefillEngineState]:
        """What is known of every engine."""
        groups = {"connected": self.live.values(), "replanned": self.replanned, "retired": self.retired}
        return (engine.inspected(status) for status, some in groups.items() for engine in some)

    def named(self, name: str | None) -> PrefillEngine:
        """A live engine; without a name, the only one. Raises HandshakeError."""
        if name is None and len(self.live) == 1:
            return next(iter(self.live.values()))
        if name in self.live:
            return self.live[name]
        if name is None and self.live:
            raise HandshakeError(f"say which prefill engine (peer=…): connected are {', '.join(sorted(self.live))}")
        text = "no prefill engine is" if name is None else f"engine {name!r} is not"
        raise HandshakeError(f"{text} connected (there are: {', '.join(sorted(self.live)) or 'none'}): call connect")

    def step_aside(self, engine: PrefillEngine) -> None:
        """Another plan takes the place of this live engine's, whose requests go on."""
        self.replanned.append(self.live.pop(engine.name))
        self._publish()

    def retire(self, engine: PrefillEngine) -> None:
        """Forget an engine as far as possible: its lists are given back, its transfers are waited for."""
        if self.live.get(engine.name) is engine:
            del self.live[engine.name]
        self.replanned = [other for other in self.replanned if other is not engine]
        engine.release()
        self.retired.append(engine)
        self._publish()

    def _publish(self) -> None:
        """Which engines there are has changed."""
        self.known = tuple(engine for _, engine in sorted(self.live.items()))
        self.every = *self.replanned, *self.live.values(), *self.retired
        served = (connection for engine in self.served() for connection in engine.connections.values())
        self.lines = tuple(connection.control for connection in served)

    def sweep(self, busy: Callable[[], set[str]]) -> None:
        """Close what nothing is in progress from any more, as its peers are not `busy`."""
        if not self.retired:
            return
        under_way = busy()
        for engine in [engine for engine in self.retired if not engine.peers & under_way]:
            engine.close()
            self._left |= engine.peers
            self.retired.remove(engine)
            for connection in engine.connections.values():
                self._connections.pop(connection.known, None)
        self._publish()


def _none(runs: Mapping[str, Runs]) -> int:
    """Bytes that are not counted here: their writer says how many they were."""
    return 0


def bare(card: WorkerCard, **change: str) -> WorkerCard:
    """A card without what is new each time that it is shown, and with this changed."""
    return msgspec.structs.replace(card, nonce=b"", **change)


def planless(card: WorkerCard) -> WorkerCard:
    """A card without what its plan decides: whether the worker has registered a stage, too, to pack into."""
    return msgspec.structs.replace(bare(card, plan=""), metadata=b"", checksum=b"", stage=0)
