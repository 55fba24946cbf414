"""Connecting: connects a decode worker to a prefill engine, on the caller's thread or on another one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kvplan.plan.types import Plan
from kvplan.runtime.clock import seconds
from kvplan.runtime.control.card import WorkerCard, describe
from kvplan.runtime.control.handshake import BorrowedLine, Caller, MetEngine, meet
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.control.keys import Keys, server
from kvplan.runtime.control.lines import LinePeer
from kvplan.runtime.decode.half import DecodeHalf
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.errors import HandshakeError
from kvplan.runtime.memory.device import enter
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import PlanSource
from kvplan.runtime.staging.requested_images import lending, requested_reads

T = TypeVar("T")
MODES = ("auto", "pull", "push")


class Connector:
    """The connector of a decode half. It greets as `identity`, with the plans of the moment. Any thread may call it."""

    def __init__(self, half: DecodeHalf, identity: Identity, plans: Callable[[], PlanSource]) -> None:
        self._half, self._endpoint, self._owner = half, half.endpoint, half.endpoint.owner
        self._identity, self._plans = identity, plans

    def connect(self, address: str, timeout: float, key: bytes | None, mode: str) -> Peer:
        """Connect to the engine at `address` on this thread. Raises what `DecodeWorker.connect` raises."""
        deadline = self._deadline(timeout, mode)
        self._half.check_taking()
        return self._connect(address, lambda: deadline, key, mode)

    def connect_soon(
        self, address: str, timeout: float, key: bytes | None, mode: str, name: str | None
    ) -> Future[Peer]:
        """Connect to an engine on another thread. Raises what `DecodeWorker.connect_soon` raises."""
        deadline, who = self._deadline(timeout, mode), (address, key, mode, name)
        if not (isinstance(address, str) and isinstance(key, bytes | None) and isinstance(name, str | None)):
            raise HandshakeError(f"{who!a:.99}: an address and a name are text, a key is bytes")
        connect = partial(self._connect, address, key=key, mode=mode, name=name)

        def begin() -> Future[Peer]:
            self._half.check_taking()
            meeting = self._half.meetings.begin(who, self._half.clock(), deadline, connect)
            meeting.add_done_callback(lambda _: self._owner.sleep.wake())
            return meeting

        return self._owner.call(begin)

    def _deadline(self, timeout: float, mode: str) -> float:
        if mode not in MODES:
            raise HandshakeError(f"mode {mode!r} is unknown: use auto, pull or push")
        return self._half.clock() + seconds(timeout, HandshakeError)

    def _connect(
        self, address: str, ends: Callable[[], float], key: bytes | None, mode: str, name: str | None = None
    ) -> Peer:
        began, pool, push = self._half.clock(), self._endpoint.pool, mode == "push"
        enter(pool.geometry)
        met = meet(self._caller(pool, key, push, ends), address)
        if name is not None and met.engine.name != name:
            self._owner.call(met.close)
            raise HandshakeError(
                f"engine {met.engine.name!r} answers at {address}, not {name!r}: ask where that one does"
            )
        if mode == "auto" and (known := self._owner.call(lambda: self._half.engines.unchanged(met))) is not None:
            push = known.push
        elif mode == "auto" and (helping := self._helping(met)):
            self._owner.call(met.close)
            logs.event(logs.INFO, "push chosen", engine=met.engine.name, workers=helping, why="no fabric in common")
            push = True
            met = meet(self._caller(pool, key, push, ends), address)
        peer = self._owner.call(lambda: self._adopt(pool, met, push))
        self._half.counters.observe("handshake_duration_seconds", self._half.clock() - began)
        return peer

    def _caller(self, pool: Pool, key: bytes | None, push: bool, ends: Callable[[], float]) -> Caller:
        return Caller(
            identity=self._identity,
            side=pool.side,
            worker=self._endpoint.worker,
            plans=self._plans(),
            keys=self._endpoint.keys,
            server_key=key,
            card_for=lambda plan: self._owner.call(lambda: self._card(plan)) if push else None,
            seconds_left=lambda: ends() - self._half.clock(),
            answers=self._endpoint.addresses,
            borrow=partial(self._borrow, key),
        )

    def _borrow(self, key: bytes | None, wanted: Callable[[LinePeer], bool]) -> BorrowedLine | None:
        """Return a line that a wanted peer with the expected key opened to this worker, or None. Raises KeysError."""
        listener, keys = self._endpoint.server, self._endpoint.keys
        if listener is None:
            return None
        public = server(keys, key) if isinstance(keys, Keys) else b""
        line = self._owner.call(lambda: listener.lines.take(wanted, public))
        return None if line is None else BorrowedLine(line, self._carried_out, self._owner.pause)

    def _carried_out(self, command: Callable[[], T]) -> T:
        """Run a command in a turn of the owner, this one if it is the caller's. Returns its result."""
        return command() if self._owner.turns.mine else self._owner.call(command)

    def _helping(self, met: MetEngine) -> list[int]:
        """Return the prefill workers without a common fabric: they would have to help when they are read."""
        read = {read.worker for read in met.plan.reads[self._endpoint.worker]}
        cards = (card for card, _ in met.workers if card.worker in read)
        return [card.worker for card in cards if self._endpoint.transport.fabrics.isdisjoint(card.fabrics)]

    def _adopt(self, pool: Pool, met: MetEngine, push: bool) -> Peer:
        if self._endpoint.closed or self._endpoint.asleep or self._endpoint.pool is not pool:
            met.close()
            raise HandshakeError("the memory of this decode worker changed meanwhile: connect again")
        return self._half.engines.adopt(met, push)

    def _card(self, plan: Plan) -> WorkerCard:
        """Return the card for prefill workers that write here; it names the stage if the plan has them pack.

        Raises what opening the stage raises, TransportError, RegisterError; HandleError.
        """
        self._half.check_open()
        endpoint = self._endpoint
        facts = endpoint.generation, endpoint.pool.geometry, endpoint.metadata
        card = describe(endpoint.worker, plan, self._identity.run, *facts)
        return lending(card, endpoint.stage, endpoint.transport, requested_reads(plan, endpoint.worker, push=True))
