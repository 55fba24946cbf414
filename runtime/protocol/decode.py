"""Decode core: what a decode worker makes of requests, messages and time, as plain state.

`step` takes inputs and returns outputs (decode_effects.py). No sockets, transport, threads or clocks are in it, so
that it can be copied, replayed and explored. It owns the phases of all requests: nothing else changes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kvplan.plan.errors import RequestError
from kvplan.plan.types import Side
from kvplan.runtime.control.messages import MOST_NAMED, Claim, Leave
from kvplan.runtime.errors import DeadlineError, LeaseError, TransferError
from kvplan.runtime.protocol import decode_effects as effects
from kvplan.runtime.protocol.decode_inbox import DecodeInbox
from kvplan.runtime.protocol.effects import Input, Output, Send, Unsent
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer
from kvplan.runtime.protocol.phases import Event, Phase

# What is waited for, of a prefill worker in each phase, as it follows that worker's name.
WAITS_FOR = {
    Phase.CLAIMING: "has not confirmed that it holds all of it",
    Phase.MOVING: "has bytes that are still on their way",
    Phase.MOVED: "is finished, and waits for the others",
    Phase.TOLD: "has not confirmed that its blocks were held to the end",
    Phase.CONFIRMED: "has confirmed it",
}


class DecodeCore:
    """The protocol of decode worker number `worker` of `side`, whose pools have these `blocks` by group.

    At most `most` requests are under way. Bytes of a connection that broke may land for `lingers` seconds.
    """

    def __init__(self, side: Side, worker: int, blocks: Mapping[str, int], most: int, lingers: float) -> None:
        self.loads = LoadTable(side, worker, blocks, most, lingers)
        self.engines: dict[KnownEngine, None] = {}
        self._inbox = DecodeInbox(self.loads)
        # No request ends by time before this.
        self._alarm = math.inf

    def step(self, now: float, inputs: Iterable[Input]) -> list[Output]:
        """What is to be done because of these inputs, in order. `now` is in seconds by the worker's clock."""
        for one in inputs:
            _HANDLERS[type(one)](self, one, now)
        return self.loads.take()

    def tick(self, now: float) -> list[Output]:
        """What it is time for: deadlines and heartbeats."""
        if now >= self._alarm:
            self._ring(now)
        for engine in [engine for engine in self.engines if now >= engine.due and engine.heartbeat_due(now)]:
            for peer in engine.peers:
                self._renew(engine, peer)
        return self.loads.take()

    def sweep(self, now: float) -> Sequence[Output]:
        """Free the blocks that nothing writes any more. Once a round, after all else."""
        return self.loads.quarantine.sweep(now)

    def until_heartbeat(self, now: float, most: float) -> float:
        """Seconds until claims have to be renewed, and at most `most`."""
        return min([most, *(engine.until_heartbeat(now) for engine in self.engines)])

    def fail_all(self, reason: Callable[[str], RequestError]) -> list[Output]:
        """Fail everything. `reason` makes the error for a request's name."""
        for load in list(self.loads.running.values()):
            self.loads.fail(load, reason(f"request {load.request.id}"))
        return self.loads.take()

    def _met(self, met: effects.EngineMet, now: float) -> None:
        self.engines[met.engine] = None
        if met.follow:
            self.loads.quarantine.follow(met.engine)

    def _begin(self, asked: effects.Begin, now: float) -> None:
        load = asked.load
        if not self.loads.begin(load, asked.engine):
            return
        # A worker that stores nothing waits for nobody.
        self.loads.advance(load)
        self._alarm = min(self._alarm, load.deadline, load.held_by)

    def _drop(self, dropped: effects.DropEngine, now: float) -> None:
        self.engines.pop(dropped.engine, None)
        for load in list(self.loads.running.values()):
            if load.engine is dropped.engine and load.phase is not Phase.CONFIRMED:
                self.loads.fail(load, TransferError(f"request {load.request.id}: {dropped.why}"))

    def _heard(self, heard: effects.Heard, now: float) -> None:
        for load in self._inbox.hear(heard, now):
            if now >= load.held_by:
                self._check_held(load, now)
            self.loads.advance(load)

    def _unsent(self, unsent: Unsent, now: float) -> None:
        message = unsent.message
        if isinstance(message, Leave):
            self.loads.quarantine.unsaid(unsent.peer, message)
            return
        for name in message.requests if isinstance(message, Claim) else (getattr(message, "request", ""),):
            load = self.loads.running.get(name)
            part = None if load is None else next((part for part in load.parts if part.peer is unsent.peer), None)
            # Of claims that were only renewed nothing is known but that the line is full.
            if part is not None and (not isinstance(message, Claim) or part.heartbeat == message.heartbeat):
                self.loads.broken(part, unsent.error)

    def _read(self, read: effects.PartRead, now: float) -> None:
        self._arrived(read.part)

    def _placed(self, placed: effects.PartPlaced, now: float) -> None:
        placed.part.placed = True
        self._arrived(placed.part)

    def _arrived(self, part: LoadPart) -> None:
        """Whatever a part reads was read: what its worker writes is there when that says so."""
        if part.phase is Phase.MOVING and not part.writes:
            part.on(Event.ARRIVED)
        if (load := self.loads.of(part)) is not None:
            self.loads.advance(load)

    def _returned(self, returned: effects.Returned, now: float) -> None:
        if returned.moved:
            returned.part.pieces.discard(returned.number)

    def _summed(self, summed: effects.PartSummed, now: float) -> None:
        if (load := self.loads.of(summed.part)) is not None:
            self.loads.or_fail(summed.part, self.loads.tell_sums, load, summed.part, summed.sums)

    def _settled(self, settled: effects.PartSettled, now: float) -> None:
        settled.part.settled = True

    def _ring(self, now: float) -> None:
        """End the requests whose time is over. A deadline may be reached, and must not be passed."""
        for load in list(self.loads.running.values()):
            if now > load.deadline:
                self.loads.fail(load, _late(load))
            self._check_held(load, now)
        times = (time for load in self.loads.running.values() for time in (load.deadline, load.held_by))
        self._alarm = min((time for time in times if time >= now), default=math.inf)

    def _check_held(self, load: Load, now: float) -> None:
        """A request that prefill has to hold by now, and does not, fails."""
        if now < load.held_by:
            return
        if unheld := [part.worker for part in load.parts if part.phase is Phase.CLAIMING and part.unheld]:
            self.loads.fail(load, _not_held(load, unheld))

    def _renew(self, engine: KnownEngine, peer: PrefillPeer) -> None:
        """Claim all that is still needed, in as many messages as that takes; nothing while earlier claims wait."""
        requests, streamed = self.loads.claims(engine, peer)
        for first in range(0, max(len(requests), 1), MOST_NAMED):
            named = requests[first : first + MOST_NAMED]
            chunked = tuple(name for name in named if name in streamed)
            self.loads.out.append(Send(peer, Claim(engine.claim(), named, chunked), droppable=True))


_HANDLERS: dict[type[Input], Callable[[DecodeCore, Any, float], None]] = {
    effects.EngineMet: DecodeCore._met,
    effects.Begin: DecodeCore._begin,
    effects.Fail: lambda core, one, _: core.loads.fail(one.load, one.error),
    effects.DropEngine: DecodeCore._drop,
    effects.FollowEngine: lambda core, one, _: core.loads.quarantine.follow(one.engine),
    effects.PeersGone: lambda core, one, _: core.loads.quarantine.gone(one.peers),
    effects.PeersDead: lambda core, one, _: core.loads.quarantine.bury(one.names),
    effects.Heard: DecodeCore._heard,
    Unsent: DecodeCore._unsent,
    effects.PartRead: DecodeCore._read,
    effects.PartPlaced: DecodeCore._placed,
    effects.PartFailed: lambda core, one, _: core.loads.broken(one.part, one.cause),
    effects.Returned: DecodeCore._returned,
    effects.PartSummed: DecodeCore._summed,
    effects.PartSettled: DecodeCore._settled,
}


def _late(load: Load) -> DeadlineError:
    waiting = [part for part in load.parts if part.phase is not Phase.CONFIRMED or not part.placed]
    text = ", ".join(f"prefill worker {part.worker} {_state(part)}" for part in waiting)
    return DeadlineError(f"request {load.request.id} did not end within {load.deadline - load.began:g} s: {text}")


def _state(part: LoadPart) -> str:
    if part.unheld and part.phase is Phase.CLAIMING:
        return "does not hold it"
    copied = part.phase > Phase.MOVING and not part.placed
    return WAITS_FOR[part.phase] + (", and its bytes are still being copied from the stage" if copied else "")


def _not_held(load: Load, workers: list[int]) -> LeaseError:
    seconds = load.held_by - load.began
    text = f"is not held by prefill workers {workers} {seconds:g} s after it was asked for"
    return LeaseError(f"request {load.request.id} {text}: call hold or open on every one, or wait longer")
