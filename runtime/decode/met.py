"""Met engines: which prefill engines a decode worker knows, and how each is heard, replaced and dropped."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import EngineCard
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.control.lines import LinePeer
from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.engines import Peer, PrefillEngine, PrefillEngines
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.ops import logs
from kvplan.runtime.protocol.loads import KnownEngine


class MetEngines:
    """The engines of one registration of the memory. Its worker's owner alone calls it."""

    def __init__(self, engines: PrefillEngines, driver: DecodeDriver, endpoint: Endpoint) -> None:
        self._engines, self._driver, self._endpoint, self._clock = engines, driver, endpoint, endpoint.clock
        # No engine is idle for long enough before.
        self._alarm = float("-inf")

    def unchanged(self, met: MetEngine) -> PrefillEngine | None:
        """The engine that was met, if it is still connected, in either mode."""
        known = self._engines.live.get(met.engine.name)
        return known if known is not None and known.same(met, known.push) else None

    def adopt(self, met: MetEngine, push: bool) -> Peer:
        """An engine that was met: a new one, the one before where nothing has changed, or its successor."""
        before = self._engines.live.get(met.engine.name)
        if before is not None and before.same(met, push):
            met.close()
            before.known.used = self._clock()
            return as_peer(before)
        if before is not None and before.replanned(met, push):
            return as_peer(self._replan(before, met))
        if before is not None:
            logs.event(logs.INFO, "peer replaced", **_succession(before.card, met.engine))
            self.drop(before, _replaced(before.card, met.engine))
        engine = self._added(met, push)
        self._driver.core.meet(engine.known, follow=True)
        return as_peer(engine)

    def listen(self) -> None:
        """Hear every engine. One that cannot be spoken to any more is dropped."""
        for engine in self._engines.every:
            # Asked first: a worker that ended has reported finished requests before.
            error = engine.broken()
            for connection in engine.connections.values():
                while messages := connection.control.receive():
                    self._driver.hear(engine, connection, messages)
                    if error is None:
                        break
            if error is not None:
                self._lost(engine, error)

    def forgotten(self, known: KnownEngine, error: KvplanError) -> None:
        """An engine does not know this worker any more."""
        self._lost(self._engines.whose(known), error)

    def evict(self, now: float, idle: float) -> None:
        """Drop the engines that nothing was asked of for `idle` seconds, or will be, as they have another plan now."""
        if now <= self._alarm and not self._engines.replanned:
            return
        self._alarm = idle + min((engine.known.used for engine in self._engines.live.values()), default=now)
        busy = {load.engine for load in self._driver.core.loads.running.values()}
        for engine in [engine for engine in self._engines.replanned if engine.known not in busy]:
            self.drop(engine, "its plan was replaced")
        for engine in list(self._engines.live.values()):
            used = busy.intersection(one.known for one in self._engines.of(engine))
            if now - engine.known.used > idle and not used:
                logs.event(logs.INFO, "peer evicted", engine=engine.name, run=engine.card.run, idle_s=idle)
                self.drop(engine, "the engine was idle")

    def drop_named(self, name: str, dead: bool) -> None:
        """Forget an engine by name. If it is `dead`, what it was asked to write is not waited for, also before.

        Raises HandshakeError where there is no such engine.
        """
        dropped = [engine for engine in self._engines.retired if engine.name == name and dead]
        if not dropped or name in self._engines.live:
            engine = self._engines.named(name)
            dropped += self._engines.of(engine)
            self.drop(engine, f"engine {name!r} was dropped")
        if dead:
            self._driver.core.loads.quarantine.bury({peer for engine in dropped for peer in engine.peers})
        self.settle()

    def drop(self, engine: PrefillEngine, why: str) -> None:
        """Forget an engine: its requests fail but those that it confirmed, and its transfers are waited for."""
        for dropped in self._engines.of(engine):
            self._driver.command(self._driver.core.drop, dropped.known, why)
            self._engines.retire(dropped)
        if (successor := self._engines.live.get(engine.name)) is not None:
            self._driver.core.loads.quarantine.follow(successor.known)

    def drop_all(self, why: str) -> None:
        for engine in self._engines.served():
            self.drop(engine, why)

    def settle(self) -> None:
        """Free what nothing writes any more, and forget the engines that nothing is in progress from."""
        self._driver.settle(self._clock())
        self.sweep()

    def sweep(self) -> None:
        """Forget the engines that nothing is in progress from."""
        self._engines.sweep(self._driver.core.loads.quarantine.busy)

    def _lost(self, engine: PrefillEngine, error: KvplanError) -> None:
        """An engine cannot be spoken to any more, or does not know this worker."""
        if self._engines.is_served(engine):
            logs.event(logs.WARNING, "peer lost", engine=engine.name, run=engine.card.run, error=error)
            self.drop(engine, str(error))

    def _added(self, met: MetEngine, push: bool) -> PrefillEngine:
        """An engine whose lines its own decode half may use, too."""
        engine, server = self._engines.add(met, push, self._clock()), self._endpoint.server
        for card, line in met.workers if server is not None else ():
            if server is not None and isinstance(line, ControlClient):
                peer = LinePeer(engine.name, engine.card.run, card.worker, engine.card.addresses, line.server_key)
                server.lines.attach(line, peer)
        return engine

    def _replan(self, before: PrefillEngine, met: MetEngine) -> PrefillEngine:
        """The same engine by another plan: what is asked for from now on moves by it, the rest as it began."""
        plans = {"plan_before": before.plan.digest, "plan": met.plan.digest}
        logs.event(logs.INFO, "plan replaced", engine=before.name, run=before.card.run, **plans)
        self._engines.step_aside(before)
        engine = self._added(met, before.push)
        self._driver.core.meet(engine.known, follow=False)
        return engine


def as_peer(engine: PrefillEngine) -> Peer:
    """An engine as callers see it."""
    return Peer(engine.name, engine.card.run, engine.plan, engine.mode)


def _succession(old: EngineCard, new: EngineCard) -> dict[str, object]:
    before = {"run_before": old.run, "generation_before": old.generation}
    return {"engine": new.name, "run": new.run, "generation": new.generation, **before}


def _replaced(old: EngineCard, new: EngineCard) -> str:
    runs = f"run {old.run}, generation {old.generation} by run {new.run}, generation {new.generation}"
    return f"engine {old.name!r} was replaced: {runs}: ask again"
