"""Leases: how long a prefill worker keeps a request's blocks: until all who read them have said so, or time is over.

The protocol is that of C. Gray and D. Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file
cache consistency" (SOSP 1989): prefill answers a claim with a promise for a time, which the reader renews while it
reads. Theirs is safe while clocks do not drift apart, ours also if they do. A pin keeps the request, with a number that
no other pin has. A reader learns it before its first read and names it after its last one: if that pin is still there,
it was there all the time. So a lease decides when unclaimed blocks are free, never whether what was read is right.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from kvplan.runtime.control.messages import LEASES, Claimed, LossReason, Lost
from kvplan.runtime.errors import HandleError, LeaseError, LimitedError
from kvplan.runtime.inspection import HoldState
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.ops.metrics import MessageKind

REMEMBERED = 1 << 16
# Runs, each by one plan, that read one request.
MOST_RUNS = 8
# Before all time: the end of a promise that its claimant has ended, and when something was done that never was.
LONG_AGO = -math.inf


class PinPhase(IntEnum):
    """How far a pin is, from the hold to the release of its blocks."""

    # Claims are taken.
    HELD = auto()
    # Given up: no claims are taken, and promises stay in force.
    WITHDRAWN = auto()
    # Lapsed, but this worker's own pushes still read the blocks.
    OVER = auto()
    RELEASED = auto()


class PinEvent(Enum):
    """An event of a pin."""

    WITHDRAWN = auto()
    # All who read it have said so, or the last promise is over.
    LAPSED = auto()
    # No push of this worker reads the blocks any more.
    FREED = auto()


PIN = StateMachine(
    "a pin",
    {
        (PinPhase.HELD, PinEvent.WITHDRAWN): PinPhase.WITHDRAWN,
        (PinPhase.HELD, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.WITHDRAWN, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.OVER, PinEvent.FREED): PinPhase.RELEASED,
    },
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """A decode worker that claims requests: its engine's run, and the digest of the plan by which it reads.

    `connection` is the number of the one over which it speaks: a later one has a higher number.
    """

    run: str
    plan: str
    worker: int
    connection: int = field(default=0, compare=False)

    @property
    def run_and_plan(self) -> tuple[str, str]:
        return self.run, self.plan

    def is_worker(self, other: Claimant) -> bool:
        """Whether both are one decode worker, by whatever plans: what is written for either lands in its blocks."""
        return (self.run, self.worker) == (other.run, other.worker)


class Promise(NamedTuple):
    """One claim's promise: the blocks are kept for its claimant until `end`, LONG_AGO once that is done or has left.

    It belongs to the numbered `connection` of the claim: no message over an earlier one ends it.
    """

    end: float
    connection: int


@dataclass(slots=True)
class Pin:
    """A request whose blocks are kept.

    `lease_end` is a lease after the hold and after every claim. `done` are the claimants that said Done. `finished`
    are the runs whose claimants all said it. `reason` is why the pin is over. `next_look` is the time of the next check
    whether it lapses. `writers` counts this side's writes that read the blocks.
    """

    request: str
    number: int
    lease_end: float
    phase: PinPhase = PinPhase.HELD
    reason: LossReason = LossReason.EXPIRED
    next_look: float = math.inf
    writers: int = 0
    promises: dict[Claimant, Promise] = field(default_factory=dict)
    done: set[Claimant] = field(default_factory=set)
    finished: set[tuple[str, str]] = field(default_factory=set)

    def on(self, event: PinEvent) -> None:
        self.phase = PIN.after(self.phase, event)

    @property
    def over(self) -> bool:
        return self.phase >= PinPhase.OVER

    def due(self) -> float:
        """When it lapses: with its lease while it is held and unfinished, otherwise with the last promise."""
        if not self.finished and self.phase is PinPhase.HELD:
            return self.lease_end
        return max((promise.end for promise in self.promises.values()), default=LONG_AGO)

    def promise(self, claimant: Claimant, end: float) -> None:
        """Keep the blocks for a claimant until then."""
        self.lease_end = max(self.lease_end, end)
        self.promises[claimant] = Promise(end, claimant.connection)

    def promised(self, claimant: Claimant) -> bool:
        """Whether a claimant has had a promise, over this connection of it or an earlier one."""
        promise = self.promises.get(claimant)
        return promise is not None and promise.connection <= claimant.connection

    def end_promise(self, claimant: Claimant) -> None:
        self.promises[claimant] = Promise(LONG_AGO, claimant.connection)

    def lapse(self) -> None:
        """No promise is left."""
        withdrawn = LossReason.WITHDRAWN if self.phase is PinPhase.WITHDRAWN else LossReason.EXPIRED
        self.reason = LossReason.FINISHED if self.finished else withdrawn
        self.on(PinEvent.LAPSED)

    def count_done(self, claimant: Claimant, contract: frozenset[int]) -> MessageKind:
        """Count a Done: counted or duplicate. A claim after a Done is a new read, whose Done counts."""
        again = claimant in self.done and self.promises[claimant].end == LONG_AGO
        self.end_promise(claimant)
        self.done.add(claimant)
        if contract <= {other.worker for other in self.done if other.run_and_plan == claimant.run_and_plan}:
            self.finished.add(claimant.run_and_plan)
        return MessageKind.DUPLICATE if again else MessageKind.COUNTED

    def runs_in_the_way(self, claimant: Claimant, expired: float) -> list[str]:
        """The runs that leave no room for the claimant's."""
        others = self._busy(expired) - {claimant.run_and_plan}
        return sorted({run for run, _ in others}) if len(others) >= MOST_RUNS else []

    def make_room(self, claimant: Claimant, expired: float) -> None:
        """Forget runs that have read nothing and were promised nothing which ends later, if there are too many."""
        if len({other.run_and_plan for other in self.promises} | {claimant.run_and_plan}) <= MOST_RUNS:
            return
        busy = self._busy(expired)
        self.promises = {other: promise for other, promise in self.promises.items() if other.run_and_plan in busy}

    def _busy(self, expired: float) -> set[tuple[str, str]]:
        promised = {other for other, promise in self.promises.items() if promise.end > expired}
        return {other.run_and_plan for other in promised | self.done}


class PastPin(NamedTuple):
    """A pin that was released."""

    number: int
    reason: LossReason
    finished: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Released:
    """A request whose blocks may be freed. `why` is finished, expired or withdrawn."""

    request: str
    why: str


class PastPins:
    """The pins that were released, the last 65,536 by request.

    `uncollected` are those that no caller was told of yet: their names cannot be held again. `new` were released since
    `take` was called last.
    """

    def __init__(self) -> None:
        self._all: OrderedDict[str, PastPin] = OrderedDict()
        self.uncollected: dict[str, None] = {}
        self.new: list[Released] = []

    def __len__(self) -> int:
        return len(self._all)

    def get(self, request: str) -> PastPin | None:
        return self._all.get(request)

    def add(self, request: str, past: PastPin) -> None:
        self._all[request] = past
        if len(self._all) > REMEMBERED:
            self._all.popitem(last=False)
        self.uncollected[request] = None
        self.new.append(Released(request, past.reason))

    def forget(self, request: str) -> None:
        """It is pinned again."""
        self._all.pop(request, None)

    def take(self) -> list[Released]:
        """The requests that were released since the last call."""
        new, self.new = self.new, []
        return new

    def collected(self, requests: Iterable[str]) -> None:
        """Callers know that these are released: their names may be held again."""
        for request in requests:
            self.uncollected.pop(request, None)


class Leases:
    """The pins of a prefill worker. Times are seconds of one clock. `past` are pins that were released.

    Only `expire` ends leases by time, so that none ends before its renewal is read. A clock that jumps forward ends
    leases early, and `done` says so.
    """

    def __init__(self, seconds: float, most: int = 4096, first: int = 0) -> None:
        """`first` is the first pin's number. Begin anywhere, so that no number is one of an earlier process.

        Raises LimitedError if `seconds` is no length of a lease, or `most` is below 1.
        """
        low, high = LEASES
        if not low <= seconds <= high or most < 1:
            text = f"a lease of {seconds:g} s for {most} requests"
            raise LimitedError(f"{text}: give {low:g} to {high:,.0f} seconds and a number from 1")
        self._seconds, self._most, self._next = seconds, most, first
        self.past, self._pins, self._expired_until = PastPins(), dict[str, Pin](), LONG_AGO
        # When to look at which pin again, a heap. A time that its pin does not name is outdated.
        self._timers: list[tuple[float, str]] = []

    def pin(self, request: str, now: float) -> int:
        """Keep a request's blocks for a lease at least. Returns the pin's number, which no other pin has.

        Raises HandleError if it is pinned, or was and that is not `collected` yet; LimitedError above `most`.
        """
        self._check_free(request)
        pin = self._pins[request] = Pin(request, self._number(), now + self._seconds)
        self.past.forget(request)
        self._update(pin)
        return pin.number

    def pass_by(self, request: str) -> None:
        """Release at once, finished, a request that nobody will ever read. Raises as `pin` does."""
        self._check_free(request)
        self.past.add(request, PastPin(self._number(), LossReason.FINISHED, frozenset()))

    def claim(self, request: str, claimant: Claimant, contract: frozenset[int], heard: float) -> Claimed | Lost:
        """Promise a claimant the blocks for a lease from its claim, which was `heard` then, or say why not."""
        if (refused := self.refuses(request, claimant, contract)) is not None:
            return refused
        pin = self._pins[request]
        pin.make_room(claimant, self._expired_until)
        pin.promise(claimant, heard + self._seconds)
        return Claimed(request, pin.number)

    def refuses(self, request: str, claimant: Claimant, contract: frozenset[int]) -> Lost | None:
        """Why a claim is refused, None if it is not."""
        if claimant.worker not in contract:
            return Lost(request, LossReason.UNEXPECTED, _stranger(claimant, contract))
        if (pin := self._kept(request)) is None:
            return _lost(request, self._known(request))
        if pin.phase is PinPhase.WITHDRAWN:
            return Lost(request, LossReason.WITHDRAWN, f"the prefill engine has given up request {request}")
        if runs := pin.runs_in_the_way(claimant, self._expired_until):
            text = f"claimed by {', '.join(runs)}: request {request} is read by {MOST_RUNS} runs already"
            return Lost(request, LossReason.CROWDED, text)
        if claimant in pin.promises and not pin.promised(claimant):
            text = f"decode worker {claimant.worker} has claimed request {request} over a later connection"
            return Lost(request, LossReason.UNEXPECTED, text)
        return None

    def renew(self, request: str, number: int, claimant: Claimant, now: float) -> None:
        """Promise the blocks of this very pin for another lease, if it is held and promised to the claimant."""
        pin = self._kept(request, number)
        if pin is not None and pin.phase is PinPhase.HELD and pin.promised(claimant):
            pin.promise(claimant, now + self._seconds)

    def done(self, request: str, number: int, claimant: Claimant, contract: frozenset[int]) -> tuple[MessageKind, str]:
        """A claimant reads no more: what that counts as, and why the pin has not lasted, empty if it has.

        If it has not, the claimant may have read other bytes.
        """
        if (refused := _refused(request, self._known(request), number, claimant, contract)) is not None:
            return refused
        pin = self._pins[request]
        kind = pin.count_done(claimant, contract)
        self._update(pin)
        return kind, ""

    def leave(self, request: str, claimant: Claimant) -> MessageKind:
        """A claimant gives the request up. Returns what that counts as: left, stale, late or unknown."""
        if (pin := self._kept(request)) is None:
            return MessageKind.LATE if self._known(request) else MessageKind.UNKNOWN
        if not pin.promised(claimant):
            return MessageKind.STALE
        pin.end_promise(claimant)
        self._update(pin)
        return MessageKind.LEFT

    def begin_write(self, request: str) -> None:
        """A write of this side reads the blocks: keep them until as many `end_write`. Raises LeaseError."""
        if (pin := self._kept(request)) is None:
            raise LeaseError(f"request {request} cannot be written: {_lost(request, self._known(request)).text}")
        pin.writers += 1

    def end_write(self, request: str) -> None:
        """Raises HandleError if the request is not being written."""
        pin = self._pins.get(request)
        if pin is None or not pin.writers:
            raise HandleError(f"request {request} is not being written: end once what was begun once")
        pin.writers -= 1
        self._update(pin)

    def lasts(self, request: str, number: int) -> bool:
        """Whether this pin of a request is not over, as of the last `expire`."""
        return self._kept(request, number) is not None

    def withdrawn(self, request: str, number: int) -> bool:
        """Whether this pin of a request was withdrawn, and is not over."""
        pin = self._kept(request, number)
        return pin is not None and pin.phase is PinPhase.WITHDRAWN

    def withdraw(self, request: str) -> None:
        """Take no more claims, and release with the last promise. Raises HandleError if it was never pinned."""
        pin = self._pins.get(request)
        if self._known(request) is None:
            raise HandleError(f"request {request} cannot be withdrawn: {_lost(request, None).text}")
        if pin is not None and pin.phase is PinPhase.HELD:
            pin.on(PinEvent.WITHDRAWN)
            self._update(pin)

    def expire(self, heard: float) -> None:
        """End the leases that are due by `heard`: every message that came until then was read."""
        self._expired_until = max(self._expired_until, heard)
        while self._timers and self._timers[0][0] <= heard:
            time, request = heapq.heappop(self._timers)
            pin = self._pins.get(request)
            if pin is not None and pin.next_look == time:
                pin.next_look = math.inf
                self._update(pin, heard)

    def holds(self) -> tuple[HoldState, ...]:
        """All pins, as they are now."""
        return tuple(map(_state, self._pins.values()))

    def held(self) -> int:
        """How many requests are pinned now. Any thread may ask."""
        return len(self._pins)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _kept(self, request: str, number: int | None = None) -> Pin | None:
        """A request's pin that is not over; with a `number`, that one only."""
        pin = self._pins.get(request)
        return None if pin is None or pin.over or number not in (None, pin.number) else pin

    def _known(self, request: str) -> Pin | PastPin | None:
        return self._pins.get(request) or self.past.get(request)

    def _check_free(self, request: str) -> None:
        if request in self._pins or request in self.past.uncollected:
            raise HandleError(f"request {request} is held: hold it again when released() has reported it")
        if len(self._pins) + len(self.past.uncollected) >= self._most:
            raise LimitedError(f"{self._most} requests are held, or not yet taken from released(): no more may be")

    def _update(self, pin: Pin, heard: float = LONG_AGO) -> None:
        """Lapse a pin that is due by `heard`, and release it if nothing here writes from it, or set its next look."""
        due = pin.due()
        if not pin.over and due <= heard:
            pin.lapse()
        if pin.phase is PinPhase.OVER and not pin.writers:
            self._release(pin)
        if not pin.over and due < pin.next_look:
            pin.next_look = due
            heapq.heappush(self._timers, (due, pin.request))

    def _release(self, pin: Pin) -> None:
        pin.on(PinEvent.FREED)
        del self._pins[pin.request]
        self.past.add(pin.request, PastPin(pin.number, pin.reason, frozenset(pin.finished)))
        if len(self._timers) > 1024 + 4 * len(self._pins):
            self._timers = [(pin.next_look, name) for name, pin in self._pins.items() if pin.next_look < math.inf]
            heapq.heapify(self._timers)


def _refused(
    request: str, pin: Pin | PastPin | None, number: int, claimant: Claimant, contract: frozenset[int]
) -> tuple[MessageKind, str] | None:
    """The kind and the text of a Done that cannot be trusted."""
    if claimant.worker not in contract:
        return MessageKind.UNEXPECTED, _stranger(claimant, contract)
    if pin is None:
        return MessageKind.UNKNOWN, _lost(request, pin).text
    if pin.number != number:
        text = f"request {request} was read under pin {number}, and has pin {pin.number}: read again"
        return MessageKind.STALE, text
    if isinstance(pin, PastPin) or pin.over:
        again = claimant.run_and_plan in pin.finished
        return MessageKind.DUPLICATE if again else MessageKind.LATE, _lost(request, pin).text
    if not pin.promised(claimant):
        text = f"decode worker {claimant.worker} of run {claimant.run} has not claimed request {request}"
        return MessageKind.STALE, f"{text} over this connection"
    return None


def _lost(request: str, pin: Pin | PastPin | None) -> Lost:
    """Why a request is not kept."""
    if pin is None:
        text = f"request {request} is not held here, nor among the last {REMEMBERED} that were"
        advice = "call hold or open on every prefill worker first"
        return Lost(request, LossReason.UNKNOWN, f"{text}: {advice}")
    text = f"pin {pin.number} of request {request} is over, {pin.reason}: have it held again, and ask again"
    return Lost(request, pin.reason, text)


def _state(pin: Pin) -> HoldState:
    promises = tuple((one.worker, one.run, end) for one, (end, _) in pin.promises.items() if end > LONG_AGO)
    return HoldState(pin.request, pin.number, pin.phase.name.lower(), pin.lease_end, promises, pin.writers)


def _stranger(claimant: Claimant, contract: frozenset[int]) -> str:
    return f"decode worker {claimant.worker} is no reader of this prefill worker by plan {claimant.plan}"
