"""Engine table: adds, hears, replaces and drops the prefill engines of a decode worker."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import EngineCard
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.lines import LinePeer, PrefillLine
from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.prefill_engine import Peer, PrefillConnection, PrefillEngine
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import HandshakeError
from kvplan.runtime.ops import logs
from kvplan.runtime.protocol.loads import KnownEngine, PrefillPeer


class EngineTable:
    """The engines of one registration of the memory. Only its worker's owner calls it.

    `live` engines are found by name. `replanned` ones have requests that end by an earlier plan. `retired` ones were
    dropped while transfers from them may be in progress. When one is closed, the endpoint has the transport forget its
    peers. The `driver` handles their messages, and the requests of dropped ones.
    """

    driver: DecodeDriver

    def __init__(self, endpoint: Endpoint) -> None:
        self.live: dict[str, PrefillEngine] = {}
        # The live engines sorted by name, for any thread.
        self.known = tuple[PrefillEngine, ...]()
        # All engines. Replanned ones come first, so that their last messages are handled before they are dropped.
        self.every = tuple[PrefillEngine, ...]()
        # The lines to the workers of the served engines.
        self.lines = tuple[PrefillLine, ...]()
        self.replanned: list[PrefillEngine] = []
        self.retired: list[PrefillEngine] = []
        self._endpoint, self._unneeded, self._clock = endpoint, endpoint.unneeded_peers, endpoint.clock
        self._connections: dict[PrefillPeer, PrefillConnection] = {}
        # The earliest time at which an engine may have been idle for long enough.
        self._next_eviction = float("-inf")

    def served(self) -> list[PrefillEngine]:
        """Return the engines that requests may be in progress from."""
        return [*self.live.values(), *self.replanned]

    def of(self, engine: PrefillEngine) -> list[PrefillEngine]:
        """Return an engine and, if it is live, the replanned ones of its name."""
        named = [other for other in self.replanned if other.name == engine.name]
        return [engine, *named] if self.live.get(engine.name) is engine else [engine]

    def connection(self, peer: PrefillPeer) -> PrefillConnection:
        """Return the connection to a worker. It exists until nothing is in progress from its engine any more."""
        return self._connections[peer]

    def named(self, name: str | None) -> PrefillEngine:
        """Return a live engine; without a name, the only one. Raises HandshakeError."""
        if name is None and len(self.live) == 1:
            return next(iter(self.live.values()))
        if name in self.live:
            return self.live[name]
        if name is None and self.live:
            raise HandshakeError(f"say which prefill engine (peer=…): connected are {', '.join(sorted(self.live))}")
        text = "no prefill engine is" if name is None else f"engine {name!r} is not"
        raise HandshakeError(f"{text} connected (there are: {', '.join(sorted(self.live)) or 'none'}): call connect")

    def unchanged(self, met: MetEngine) -> PrefillEngine | None:
        """Return the connected engine that is the same as the one that was met, in either mode, or None."""
        known = self.live.get(met.engine.name)
        return known if known is not None and known.same(met, known.push) else None

    def adopt(self, met: MetEngine, push: bool) -> Peer:
        """Add an engine that was met, and return it. It replaces the one of its name, unless nothing has changed."""
        before = self.live.get(met.engine.name)
        if before is not None and before.same(met, push):
            met.close()
            before.known.used = self._clock()
            return before.as_peer()
        if before is not None and before.replanned(met, push):
            return self._replan(before, met).as_peer()
        if before is not None:
            logs.event(logs.INFO, "peer replaced", **_succession(before.card, met.engine))
            self.drop(before, _replaced(before.card, met.engine))
        engine = self._added(met, push)
        self.driver.core.meet(engine.known, follow=True)
        return engine.as_peer()

    def listen(self) -> None:
        """Read the messages of every engine. Drop engines whose lines are broken."""
        for engine in self.every:
            # Check this first: a worker that ended has sent its last messages before its line broke.
            error = engine.broken()
            for connection in engine.connections.values():
                while messages := connection.control.receive():
                    self.driver.hear(engine, connection, messages)
                    if error is None:
                        break
            if error is not None:
                self._lost(engine, error)

    def forgotten(self, known: KnownEngine, error: KvplanError) -> None:
        """Drop an engine that does not know this worker any more."""
        self._lost(next(engine for engine in self.every if engine.known is known), error)

    def evict(self, now: float, idle: float) -> None:
        """Drop the engines without a request for `idle` seconds, and the replanned ones whose requests have ended."""
        if now <= self._next_eviction and not self.replanned:
            return
        self._next_eviction = idle + min((engine.known.used for engine in self.live.values()), default=now)
        busy = {load.engine for load in self.driver.core.loads.running.values()}
        for engine in [engine for engine in self.replanned if engine.known not in busy]:
            self.drop(engine, "its plan was replaced")
        for engine in list(self.live.values()):
            used = busy.intersection(one.known for one in self.of(engine))
            if now - engine.known.used > idle and not used:
                logs.event(logs.INFO, "peer evicted", engine=engine.name, run=engine.card.run, idle_s=idle)
                self.drop(engine, "the engine was idle")

    def drop_named(self, name: str, dead: bool) -> None:
        """Forget an engine by name. If it is `dead`, its writes are not waited for, even if it was dropped before.

        Raises HandshakeError if no such engine is known.
        """
        dropped = [engine for engine in self.retired if engine.name == name and dead]
        if not dropped or name in self.live:
            engine = self.named(name)
            dropped += self.of(engine)
            self.drop(engine, f"engine {name!r} was dropped")
        if dead:
            self.driver.core.loads.quarantine.bury({peer for engine in dropped for peer in engine.peers})
        self.reap()

    def drop(self, engine: PrefillEngine, why: str) -> None:
        """Forget an engine: its requests fail except those that it confirmed, and its transfers are waited for."""
        for dropped in self.of(engine):
            self.driver.command(self.driver.core.drop, dropped.known, why)
            self._retire(dropped)
        if (successor := self.live.get(engine.name)) is not None:
            self.driver.core.loads.quarantine.follow(successor.known)

    def reap(self) -> None:
        """Free the blocks that nothing writes any more, and close the engines that nothing is in progress from."""
        self.driver.follow()
        self.driver.command(self.driver.core.sweep, self._clock())
        self.sweep()

    def sweep(self) -> None:
        """Close the engines that nothing is in progress from any more."""
        if not self.retired:
            return
        busy = self.driver.core.loads.quarantine.busy()
        for engine in [engine for engine in self.retired if not engine.peers & busy]:
            engine.close()
            self._unneeded |= engine.peers
            self.retired.remove(engine)
            for connection in engine.connections.values():
                self._connections.pop(connection.known, None)
        self._publish()

    def _lost(self, engine: PrefillEngine, error: KvplanError) -> None:
        """Drop an engine whose line is broken, or that does not know this worker."""
        if any(engine is other for other in self.served()):
            logs.event(logs.WARNING, "peer lost", engine=engine.name, run=engine.card.run, error=error)
            self.drop(engine, str(error))

    def _added(self, met: MetEngine, push: bool) -> PrefillEngine:
        """Add an engine, and share its lines with its own decode half, if this worker has a server."""
        engine, server = self._add(met, push), self._endpoint.server
        for card, line in met.workers if server is not None else ():
            if server is not None and isinstance(line, ControlClient):
                peer = LinePeer(engine.name, engine.card.run, card.worker, engine.card.addresses, line.server_key)
                line.share(server.lines, peer)
        return engine

    def _replan(self, before: PrefillEngine, met: MetEngine) -> PrefillEngine:
        """Add the same engine with another plan: new requests use it, those in progress keep the plan before."""
        plans = {"plan_before": before.plan.digest, "plan": met.plan.digest}
        logs.event(logs.INFO, "plan replaced", engine=before.name, run=before.card.run, **plans)
        self.replanned.append(self.live.pop(before.name))
        self._publish()
        engine = self._added(met, before.push)
        self.driver.core.meet(engine.known, follow=False)
        return engine

    def _add(self, met: MetEngine, push: bool) -> PrefillEngine:
        """Add an engine whose name no live engine has. Raises what adding a worker raises."""
        engine = PrefillEngine(met, push, self._endpoint, self._clock())
        try:
            for card, control in met.workers:
                engine.add(card, control)
            engine.know()
        except BaseException:
            met.close()
            self._unneeded |= engine.peers
            self._retire(engine)
            # Its lines were given back, and others may use them by now.
            engine.connections.clear()
            self._publish()
            raise
        self.live[engine.name] = engine
        self._connections |= {connection.known: connection for connection in engine.connections.values()}
        self._publish()
        facts = {"engine": engine.name, "run": engine.card.run, "plan": engine.plan.digest}
        logs.event(logs.INFO, "peer met", **facts, mode=engine.mode, workers=len(engine.connections))
        return engine

    def _retire(self, engine: PrefillEngine) -> None:
        """Make an engine retired: release its prepared lists, and wait for its transfers."""
        if self.live.get(engine.name) is engine:
            del self.live[engine.name]
        self.replanned = [other for other in self.replanned if other is not engine]
        engine.release()
        self.retired.append(engine)
        self._publish()

    def _publish(self) -> None:
        """Update the tuples that other threads read, after the engines changed."""
        self.known = tuple(engine for _, engine in sorted(self.live.items()))
        self.every = *self.replanned, *self.live.values(), *self.retired
        served = (connection for engine in self.served() for connection in engine.connections.values())
        self.lines = tuple(connection.control for connection in served)


def _succession(old: EngineCard, new: EngineCard) -> dict[str, object]:
    before = {"run_before": old.run, "generation_before": old.generation}
    return {"engine": new.name, "run": new.run, "generation": new.generation, **before}


def _replaced(old: EngineCard, new: EngineCard) -> str:
    runs = f"run {old.run}, generation {old.generation} by run {new.run}, generation {new.generation}"
    return f"engine {old.name!r} was replaced: {runs}: ask again"
