"""Prefill engines of a decode worker: how each is met, heard, replaced and dropped."""

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
    """The engines of one registration of the memory. Its worker's owner alone calls it.

    They are `live`, by name; `replanned`, whose requests end by the plan before; or `retired`: dropped, and something
    may still be in progress from them. When one is closed, the endpoint has the transport forget its peers. What they
    say, and what is to be done when one is dropped, is the `driver`'s.
    """

    driver: DecodeDriver

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
        self._endpoint, self._unneeded, self._clock = endpoint, endpoint.unneeded_peers, endpoint.clock
        self._connections: dict[PrefillPeer, PrefillConnection] = {}
        # No engine is idle for long enough before.
        self._next_eviction = float("-inf")

    def served(self) -> list[PrefillEngine]:
        """The engines that requests may be in progress from."""
        return [*self.live.values(), *self.replanned]

    def of(self, engine: PrefillEngine) -> list[PrefillEngine]:
        """An engine, and where it is live those of its name that another plan replaced."""
        named = [other for other in self.replanned if other.name == engine.name]
        return [engine, *named] if self.live.get(engine.name) is engine else [engine]

    def connection(self, peer: PrefillPeer) -> PrefillConnection:
        """How a worker is spoken to, until nothing is in progress from its engine any more."""
        return self._connections[peer]

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

    def unchanged(self, met: MetEngine) -> PrefillEngine | None:
        """The engine that was met, if it is still connected, in either mode."""
        known = self.live.get(met.engine.name)
        return known if known is not None and known.same(met, known.push) else None

    def adopt(self, met: MetEngine, push: bool) -> Peer:
        """An engine that was met: a new one, the one before where nothing has changed, or its successor."""
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
        """Hear every engine. One that cannot be spoken to any more is dropped."""
        for engine in self.every:
            # Asked first: a worker that ended has reported finished requests before.
            error = engine.broken()
            for connection in engine.connections.values():
                while messages := connection.control.receive():
                    self.driver.hear(engine, connection, messages)
                    if error is None:
                        break
            if error is not None:
                self._lost(engine, error)

    def forgotten(self, known: KnownEngine, error: KvplanError) -> None:
        """An engine does not know this worker any more."""
        self._lost(next(engine for engine in self.every if engine.known is known), error)

    def evict(self, now: float, idle: float) -> None:
        """Drop the engines that nothing was asked of for `idle` seconds, or will be, as they have another plan now."""
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
        """Forget an engine by name. If it is `dead`, what it was asked to write is not waited for, also before.

        Raises HandshakeError where there is no such engine.
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
        """Forget an engine: its requests fail but those that it confirmed, and its transfers are waited for."""
        for dropped in self.of(engine):
            self.driver.command(self.driver.core.drop, dropped.known, why)
            self._retire(dropped)
        if (successor := self.live.get(engine.name)) is not None:
            self.driver.core.loads.quarantine.follow(successor.known)

    def reap(self) -> None:
        """Free what nothing writes any more, and forget the engines that nothing is in progress from."""
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
        """An engine cannot be spoken to any more, or does not know this worker."""
        if any(engine is other for other in self.served()):
            logs.event(logs.WARNING, "peer lost", engine=engine.name, run=engine.card.run, error=error)
            self.drop(engine, str(error))

    def _added(self, met: MetEngine, push: bool) -> PrefillEngine:
        """An engine whose lines its own decode half may use, too."""
        engine, server = self._add(met, push), self._endpoint.server
        for card, line in met.workers if server is not None else ():
            if server is not None and isinstance(line, ControlClient):
                peer = LinePeer(engine.name, engine.card.run, card.worker, engine.card.addresses, line.server_key)
                line.share(server.lines, peer)
        return engine

    def _replan(self, before: PrefillEngine, met: MetEngine) -> PrefillEngine:
        """The same engine by another plan: what is asked for from now on moves by it, the rest as it began."""
        plans = {"plan_before": before.plan.digest, "plan": met.plan.digest}
        logs.event(logs.INFO, "plan replaced", engine=before.name, run=before.card.run, **plans)
        self.replanned.append(self.live.pop(before.name))
        self._publish()
        engine = self._added(met, before.push)
        self.driver.core.meet(engine.known, follow=False)
        return engine

    def _add(self, met: MetEngine, push: bool) -> PrefillEngine:
        """An engine that was met, which has none of its name before it. Raises what adding a worker raises."""
        engine = PrefillEngine(met, push, self._endpoint, self._clock())
        try:
            for card, control in met.workers:
                engine.add(card, control)
            engine.know()
        except BaseException:
            met.close()
            self._unneeded |= engine.peers
            self._retire(engine)
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

    def _retire(self, engine: PrefillEngine) -> None:
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


def _succession(old: EngineCard, new: EngineCard) -> dict[str, object]:
    before = {"run_before": old.run, "generation_before": old.generation}
    return {"engine": new.name, "run": new.run, "generation": new.generation, **before}


def _replaced(old: EngineCard, new: EngineCard) -> str:
    runs = f"run {old.run}, generation {old.generation} by run {new.run}, generation {new.generation}"
    return f"engine {old.name!r} was replaced: {runs}: ask again"
