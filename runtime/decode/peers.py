"""The engines that a decode worker has met, those it has dropped and still waits for, and when it forgets them."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.runtime.control.card import EngineCard
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.handshake import MetEngine
from kvplan.runtime.decode.peer import LocalWorker, PrefillEngine
from kvplan.runtime.decode.transfers import TransferTable
from kvplan.runtime.errors import HandshakeError, TransferError, TransportError
from kvplan.runtime.ops import logs


class PrefillEngines:
    """`live` by the engine's name; `retired` are dropped, and something of theirs may still be under way."""

    def __init__(self, home: LocalWorker, flight: TransferTable) -> None:
        self.live: dict[str, PrefillEngine] = {}
        self.retired: list[PrefillEngine] = []
        self._home, self._flight = home, flight
        self._peers: set[str] = set()

    def adopt(self, met: MetEngine, push: bool, now: float) -> PrefillEngine:
        """A session with an engine that was met; the old one where nothing has changed. Raises what adding raises."""
        before = self.live.get(met.engine.name)
        if before is not None and before.same(met, push):
            met.close()
            before.used = now
            return before
        if before is not None:
            logs.event(logs.INFO, "peer replaced", **_turn(met.engine, before.engine))
            self.drop(before, lambda who: _replaced(who, before.engine, met.engine))
        session = PrefillEngine(met, push, self._home, now)
        try:
            for card, line in met.workers:
                session.add(card, line)
        except KvplanError:
            met.close()
            self._retire(session)
            raise
        finally:
            self._peers |= {member.peer for member in session.members.values()}
        self.live[session.name] = session
        self._flight.orphans.follow(session.members)
        logs.event(logs.INFO, "peer met", **session.facts())
        return session

    def lines(self) -> list[ControlClient]:
        """The lines to all workers of live engines."""
        return [member.line for session in self.live.values() for member in session.members.values()]

    def named(self, name: str | None) -> PrefillEngine:
        """The live session of an engine; without a name, of the only one. Raises HandshakeError."""
        if name is None and len(self.live) == 1:
            return next(iter(self.live.values()))
        if name in self.live:
            return self.live[name]
        if name is None and self.live:
            raise HandshakeError(f"say which prefill engine (peer=…): connected are {', '.join(sorted(self.live))}")
        text = "no prefill engine is" if name is None else f"engine {name!r} is not"
        raise HandshakeError(f"{text} connected (there are: {', '.join(sorted(self.live)) or 'none'}): call connect")

    def drop(self, session: PrefillEngine, reason: Callable[[str], RequestError]) -> None:
        """Forget an engine: its requests fail. Its lists are given back; what is under way from it is waited for."""
        if self.live.get(session.name) is session:
            del self.live[session.name]
        self._flight.stop(session, reason)
        self._retire(session)

    def evict(self, idle: float, now: float) -> None:
        """Drop the engines that nothing was asked of for `idle` seconds."""
        for session in [one for one in self.live.values() if now - one.used > idle]:
            if not any(mine is session for _, mine in self._flight.running.values()):
                logs.event(logs.INFO, "peer evicted", engine=session.name, run=session.engine.run, idle_s=idle)
                self.drop(session, lambda who: TransferError(f"{who}: the engine was idle"))

    def sweep(self) -> None:
        """Close what nothing is under way from any more, and have the transport forget it."""
        if not self.retired:
            return
        busy = self._flight.orphans.busy()
        for session in list(self.retired):
            peers = {member.peer for member in session.members.values()}
            if not peers & busy:
                session.close()
                self.retired.remove(session)
        used = {member.peer for one in (*self.live.values(), *self.retired) for member in one.members.values()}
        for peer in sorted(self._peers - used - busy):
            self._forget(peer)

    def _retire(self, session: PrefillEngine) -> None:
        session.release()
        self.retired.append(session)

    def _forget(self, peer: str) -> None:
        self._peers.discard(peer)
        try:
            self._home.transport.remove_peer(peer)
        except TransportError as error:
            logs.event(logs.WARNING, "removal failed", peer=peer, error=error)


def _turn(new: EngineCard, old: EngineCard) -> dict[str, object]:
    before = {"run_before": old.run, "generation_before": old.generation}
    return {"engine": new.name, "run": new.run, "generation": new.generation, **before}


def _replaced(who: str, old: EngineCard, new: EngineCard) -> TransferError:
    runs = f"run {old.run}, generation {old.generation} by run {new.run}, generation {new.generation}"
    return TransferError(f"{who}: engine {old.name!r} was replaced: {runs}: ask again")
