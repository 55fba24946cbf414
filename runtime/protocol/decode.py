"""Decode core: the protocol of a decode worker as plain state.

Callers report events through its methods; `take` returns what the worker has to do (effects.py). It has no sockets,
transport, threads or clocks, so that it can be copied, replayed and explored. It owns the phases of all requests:
nothing else changes them. Times are seconds by the worker's clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.plan.types import Side
from kvplan.runtime.control.messages import MOST_NAMED, Claim, Leave, Sums
from kvplan.runtime.errors import DeadlineError, LeaseError, TransferError
from kvplan.runtime.protocol.decode_inbox import DecodeInbox
from kvplan.runtime.protocol.effects import Output, Send
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer
from kvplan.runtime.protocol.phases import Event, Phase

# Texts that follow a prefill worker's name, by phase: why a request still waits for this worker.
WAITS_FOR = {
    Phase.CLAIMING: "has not confirmed that it holds all of it",
    Phase.MOVING: "has bytes that are still on their way",
    Phase.ARRIVED: "is finished, and waits for the others",
    Phase.TOLD: "has not confirmed that its blocks were held to the end",
    Phase.CONFIRMED: "has confirmed it",
}


class DecodeCore:
    """The protocol of a decode worker of `side`, whose pools have these `blocks` by group.

    At most `most` requests are in progress. Bytes of a broken connection may land for `linger_s` seconds.
    """

    def __init__(self, side: Side, blocks: Mapping[str, int], most: int, linger_s: float) -> None:
        self.loads = LoadTable(side, blocks, most, linger_s)
        self.engines: dict[KnownEngine, None] = {}
        self._inbox = DecodeInbox(self.loads)
        # The earliest time at which a request may end by time.
        self._next_timeout = math.inf

    def take(self) -> list[Output]:
        """Return the outputs of all that happened, in order, each once."""
        return self.loads.take()

    def meet(self, engine: KnownEngine, *, follow: bool) -> None:
        """Add a prefill engine that is connected. With `follow`, it replaces a lost engine of the same workers."""
        self.engines[engine] = None
        if follow:
            self.loads.quarantine.follow(engine)

    def drop(self, engine: KnownEngine, why: str) -> None:
        """Drop an engine: its requests fail, except those that all of its workers have confirmed."""
        self.engines.pop(engine, None)
        for load in list(self.loads.running.values()):
            if load.engine is engine and load.phase is not Phase.CONFIRMED:
                self.loads.fail(load, TransferError(f"request {load.request.id}: {why}"))

    def begin(self, load: Load, engine: KnownEngine, now: float) -> None:
        """Begin to load a request from an engine. An error of the request ends it."""
        load.hold_deadline = now + load.hold_within
        if not self.loads.begin(load, engine):
            return
        # If no prefill worker has a part in it, it ends at once.
        self.loads.advance(load)
        self._next_timeout = min(self._next_timeout, load.deadline, load.hold_deadline)

    def fail_all(self, reason: Callable[[str], RequestError]) -> None:
        """Fail all requests. `reason` returns the error for a text that names one."""
        for load in list(self.loads.running.values()):
            self.loads.fail(load, reason(f"request {load.request.id}"))

    def hear(self, engine: KnownEngine, peer: PrefillPeer, message: Any, now: float, *, broken: bool = False) -> None:
        """Act on a message of a prefill worker, maybe over a line that is `broken`."""
        for load in self._inbox.hear(engine, peer, message, now, broken):
            self._check_held(load, now)
            self.loads.advance(load)

    def unsent(self, peer: PrefillPeer, message: msgspec.Struct, error: KvplanError) -> None:
        """Handle a message that could not be sent, and why: repeat a Leave later, fail the request of any other."""
        if isinstance(message, Leave):
            self.loads.quarantine.leave_unsent(peer, message)
            return
        for name in message.requests if isinstance(message, Claim) else (getattr(message, "request", ""),):
            load = self.loads.running.get(name)
            part = None if load is None else next((part for part in load.parts if part.peer is peer), None)
            # An unsent renewal means only that the line is full now: it fails nothing.
            if part is not None and (not isinstance(message, Claim) or part.heartbeat == message.heartbeat):
                self.loads.broken(part, error)

    def arrived(self, part: LoadPart) -> None:
        """Note that the transport has read all of a part; copies from the stage may still be in progress.

        A part that its worker writes arrives by that worker's message instead.
        """
        if part.phase is Phase.MOVING and not part.writes:
            part.on(Event.ARRIVED)
        if (load := self.loads.of(part)) is not None:
            self.loads.advance(load)

    def placed(self, part: LoadPart) -> None:
        """Note that all bytes that were handed over of a part are in their places."""
        part.placed = True
        self.arrived(part)

    def returned(self, part: LoadPart, number: int) -> None:
        """Note that a writer has filled and returned a buffer."""
        part.pieces.discard(number)

    def settled(self, part: LoadPart) -> None:
        """Note that nothing that was handed over of a stopped part can be written any more."""
        part.settled = True

    def summed(self, part: LoadPart, sums: Sums | Exception) -> None:
        """Take the checksums of a part, or the error that prevented them."""
        if isinstance(sums, Exception):
            self.loads.broken(part, sums)
        elif (load := self.loads.of(part)) is not None:
            self.loads.or_fail(part, self.loads.tell_sums, load, part, sums)

    def tick(self, now: float) -> None:
        """Do what is due now: end requests by deadline, and renew claims."""
        if now >= self._next_timeout:
            self._time_out(now)
        for engine in [engine for engine in self.engines if now >= engine.due and engine.heartbeat_due(now)]:
            for peer in engine.peers:
                self._renew(engine, peer)

    def sweep(self, now: float) -> None:
        """Free the blocks that nothing writes any more. Call it at the end of each step."""
        self.loads.out += self.loads.quarantine.sweep(now)

    def until_heartbeat(self, now: float, most: float) -> float:
        """Return the seconds until claims have to be renewed, at most `most`."""
        return min([most, *(engine.until_heartbeat(now) for engine in self.engines)])

    def _time_out(self, now: float) -> None:
        """Fail the requests whose deadlines have passed. At the deadline itself a request still runs."""
        for load in list(self.loads.running.values()):
            if now > load.deadline:
                self.loads.fail(load, _late(load))
            self._check_held(load, now)
        times = (time for load in self.loads.running.values() for time in (load.deadline, load.hold_deadline))
        self._next_timeout = min((time for time in times if time >= now), default=math.inf)

    def _check_held(self, load: Load, now: float) -> None:
        """Fail a request that prefill had to hold by now and does not hold."""
        if now < load.hold_deadline:
            return
        if not_held := [part.worker for part in load.parts if part.phase is Phase.CLAIMING and part.not_held]:
            self.loads.fail(load, _not_held(load, not_held))

    def _renew(self, engine: KnownEngine, peer: PrefillPeer) -> None:
        """Claim again all requests that still need a worker, MOST_NAMED per message; skipped while the line is full."""
        requests, streamed = self.loads.claims(engine, peer)
        for first in range(0, max(len(requests), 1), MOST_NAMED):
            named = requests[first : first + MOST_NAMED]
            chunked = tuple(name for name in named if name in streamed)
            self.loads.out.append(Send(peer, Claim(engine.next_heartbeat(), named, chunked), droppable=True))


def _late(load: Load) -> DeadlineError:
    unconfirmed = [part for part in load.parts if part.phase is not Phase.CONFIRMED or not part.placed]
    # A worker that has sent all waits for the others: these are why it is late.
    waiting = [part for part in unconfirmed if part.phase is not Phase.ARRIVED or not part.placed] or unconfirmed
    text = ", ".join(f"prefill worker {part.worker} {_state(load, part)}" for part in waiting)
    return DeadlineError(f"request {load.request.id} did not end within {load.deadline - load.began:g} s: {text}")


def _state(load: Load, part: LoadPart) -> str:
    if part.not_held and part.phase is Phase.CLAIMING:
        return "does not hold it"
    if part.phase is Phase.MOVING and load.in_chunks(part):
        # Decode does not know which: chunks move, or are written, as prefill computes them.
        return f"{WAITS_FOR[part.phase]}, or has not computed all of it yet"
    copied = part.phase > Phase.MOVING and not part.placed
    return WAITS_FOR[part.phase] + (", and its bytes are still being copied from the stage" if copied else "")


def _not_held(load: Load, workers: list[int]) -> LeaseError:
    text = f"is not held by prefill workers {workers} {load.hold_within:g} s after they were asked"
    return LeaseError(f"request {load.request.id} {text}: call hold or open on every one, or wait longer")
