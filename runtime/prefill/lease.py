"""Leases: how long a prefill worker keeps a request's blocks, until all who read them have said so or time is over.

The protocol is that of C. Gray and D. Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file
cache consistency" (SOSP 1989): a reader's claim is answered with a promise for a time, which it renews while it
reads, and who falls silent loses it. Theirs is safe as long as clocks do not drift apart; ours also where they do: a
request is kept by a pin with a number that no other pin has. A reader learns it before its first read and names it
after its last one; if the pin with that number is still there, it was there all the time, whatever either side's clock
did. So a lease decides when blocks that nobody claims are free, never whether what was read is right.
"""

from __future__ import annotations

import heapq
import itertools
import math
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple, TypeVar

from kvplan.runtime.control.messages import Claimed, LossReason, Lost
from kvplan.runtime.errors import HandleError, LimitedError
from kvplan.runtime.inspection import HoldState
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.ops.metrics import MessageKind

T = TypeVar("T")
REMEMBERED = 1 << 16
# Pairs of run and plan that read one request.
PAIRS = 8
NEVER = -math.inf

# Begins anywhere: a number that the process before this one gave is not taken for one of ours.
_NUMBERS = itertools.count(secrets.randbits(62))


class PinPhase(IntEnum):
    """What a pin is on its way to free blocks."""

    # Claims are taken.
    KEPT = auto()
    # Given up: no claims are taken, and promises are kept.
    WITHDRAWN = auto()
    # Nobody is promised anything, and this side still writes what is there.
    OVER = auto()
    RELEASED = auto()


class PinEvent(Enum):
    """What happens to a pin."""

    WITHDRAWN = auto()
    # All who read it have said so, or the last promise is over.
    LAPSED = auto()
    # This side writes nothing of it any more.
    FREED = auto()


PIN = StateMachine(
    "a pin",
    {
        (PinPhase.KEPT, PinEvent.WITHDRAWN): PinPhase.WITHDRAWN,
        (PinPhase.KEPT, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.WITHDRAWN, PinEvent.LAPSED): PinPhase.OVER,
        (PinPhase.OVER, PinEvent.FREED): PinPhase.RELEASED,
    },
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """A decode worker that reads: which run of which engine, by which plan (its digest)."""

    run: str
    plan: str
    worker: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.run, self.plan

    def is_worker(self, other: Claimant) -> bool:
        """Whether both are one decode worker, by whatever plans: what is written for either lands in its blocks."""
        return (self.run, self.worker) == (other.run, other.worker)


@dataclass(frozen=True, slots=True)
class Released:
    """A request whose blocks may be freed. `why` is finished, expired or withdrawn."""

    request: str
    why: str


@dataclass(frozen=True, slots=True)
class LeaseEvent:
    """What a message meant. Of leases: counted, left, duplicate, unexpected, stale, late or unknown."""

    kind: MessageKind
    request: str | None = None
    worker: int | None = None
    text: str = ""


@dataclass(slots=True)
class Pin:
    """A request whose blocks are kept.

    `claims` say until when a claimant was promised the blocks: NEVER once it is done or has left. `floor` is what
    was promised to runs that are forgotten, `reason` why the pin is over, `alarm` when to look at it next. `writers`
    are this side's own writes that read the blocks.
    """

    request: str
    number: int
    until: float
    phase: PinPhase = PinPhase.KEPT
    reason: LossReason = LossReason.EXPIRED
    floor: float = NEVER
    alarm: float = math.inf
    writers: int = 0
    claims: dict[Claimant, float] = field(default_factory=dict)
    done: set[Claimant] = field(default_factory=set)
    finished: set[tuple[str, str]] = field(default_factory=set)

    def on(self, event: PinEvent) -> None:
        self.phase = PIN.after(self.phase, event)

    @property
    def over(self) -> bool:
        return self.phase >= PinPhase.OVER

    def due(self) -> float:
        """When it lapses, unless it is claimed again."""
        if not self.finished and self.phase is PinPhase.KEPT:
            return self.until
        return max(self.floor, max(self.claims.values(), default=NEVER))

    def lapse(self) -> None:
        """Nobody is promised anything any more."""
        withdrawn = LossReason.WITHDRAWN if self.phase is PinPhase.WITHDRAWN else LossReason.EXPIRED
        self.reason = LossReason.FINISHED if self.finished else withdrawn
        self.on(PinEvent.LAPSED)

    def count_done(self, claimant: Claimant, contract: frozenset[int]) -> MessageKind:
        """Count a Done: counted or duplicate. A claim after a Done is a new read, whose Done counts."""
        again = claimant in self.done and self.claims[claimant] == NEVER
        self.claims[claimant] = NEVER
        self.done.add(claimant)
        if contract <= {other.worker for other in self.done if other.pair == claimant.pair}:
            self.finished.add(claimant.pair)
        return MessageKind.DUPLICATE if again else MessageKind.COUNTED

    def forget(self, run: str) -> None:
        for claimant in [claimant for claimant in self.claims if claimant.run == run]:
            self.floor = max(self.floor, self.claims.pop(claimant))
            self.done.discard(claimant)
        self.finished = {pair for pair in self.finished if pair[0] != run}

    def crowd(self, claimant: Claimant, now: float) -> list[str]:
        """The runs that leave no room for one more pair of run and plan; pairs whose leases are over make room."""
        if len({other.pair for other in self.claims} | {claimant.pair}) <= PAIRS:
            return []
        busy = {other.pair for other, until in self.claims.items() if until > now} | self.finished
        for other in [other for other in self.claims if other.pair not in busy]:
            del self.claims[other]
            self.done.discard(other)
        return sorted({run for run, _ in busy}) if len(busy) >= PAIRS else []


class _PastPin(NamedTuple):
    """A pin that was released."""

    number: int
    reason: LossReason
    finished: frozenset[tuple[str, str]]


class Leases:
    """The pins of a prefill worker. Times are seconds of one clock, which may jump; not thread-safe.

    A step back by less than a lease is waited out, a longer one followed: neither takes back what has passed. A jump
    forward ends leases early, and then `done` says so. `numbers` counts releases by reason, and messages by kind.
    """

    def __init__(self, seconds: float, most: int = 4096) -> None:
        """Raises LimitedError where `seconds` is no length of time, or `most` requests are none."""
        if not 0 < seconds < math.inf or most < 1:
            raise LimitedError(f"a lease of {seconds} s for {most} requests: give a time above 0 and a number from 1")
        self._seconds, self._most = seconds, most
        self._now, self._shift = NEVER, 0.0
        self._pins: dict[str, Pin] = {}
        # Those that `released` has not reported, in order, for any thread; and their names.
        self._untaken, self._unreported = deque[Released](), set[str]()
        self._just_released: list[Released] = []
        self._past: OrderedDict[str, _PastPin] = OrderedDict()
        self._alarms: list[tuple[float, str]] = []
        self.numbers: Counter[str] = Counter()

    def pin(self, request: str, now: float) -> int:
        """Keep a request's blocks for a lease at least. Returns the pin's number, new in this process.

        Raises HandleError where it is pinned, or was and `released` has not said so yet; LimitedError above `most`.
        """
        self.expire(now)
        self._check_free(request)
        pin = self._pins[request] = Pin(request, next(_NUMBERS), self._now + self._seconds)
        self._past.pop(request, None)
        self._settle(pin)
        return pin.number

    def pass_by(self, request: str, now: float) -> None:
        """Release a request at once, finished, that nobody will ever read. Raises as `pin` does."""
        self.expire(now)
        self._check_free(request)
        self._remember(request, _PastPin(next(_NUMBERS), LossReason.FINISHED, frozenset()))

    def claim(self, request: str, claimant: Claimant, contract: frozenset[int], now: float) -> Claimed | Lost:
        """Promise a claimant the blocks for a lease from now, or say why not."""
        self.expire(now)
        if claimant.worker not in contract:
            return Lost(request, LossReason.UNEXPECTED, _stranger(claimant, contract))
        pin = self._pins.get(request)
        if pin is None or pin.over:
            return self._lost(request)
        if pin.phase is PinPhase.WITHDRAWN:
            return Lost(request, LossReason.WITHDRAWN, f"the prefill engine has given up request {request}")
        if crowd := pin.crowd(claimant, self._now):
            text = f"claimed by {', '.join(crowd)}: request {request} is read by {PAIRS} pairs of run and plan already"
            return Lost(request, LossReason.CROWDED, text)
        pin.until = pin.claims[claimant] = self._now + self._seconds
        return Claimed(request, pin.number)

    def done(
        self, request: str, number: int, claimant: Claimant, contract: frozenset[int], now: float
    ) -> tuple[bool, LeaseEvent]:
        """A claimant reads no more. Returns whether the pin has lasted; otherwise its reads may be of other bytes."""
        self.expire(now)
        refused = self._refused(request, number, claimant, contract)
        if refused is not None:
            return False, self._event(refused[0], request, claimant, refused[1])
        pin = self._pins[request]
        kind = pin.count_done(claimant, contract)
        self._settle(pin)
        return True, self._event(kind, request, claimant)

    def leave(self, request: str, claimant: Claimant, now: float) -> LeaseEvent:
        """A claimant gives the request up, and reads no more."""
        self.expire(now)
        pin = self._pins.get(request)
        if pin is None or pin.over:
            kind = MessageKind.LATE if pin or request in self._past else MessageKind.UNKNOWN
            return self._event(kind, request, claimant, self._lost(request).text)
        if claimant not in pin.claims:
            return self._event(MessageKind.STALE, request, claimant, _unclaimed(request, claimant))
        pin.claims[claimant] = NEVER
        self._settle(pin)
        return self._event(MessageKind.LEFT, request, claimant)

    def forget(self, run: str, now: float) -> None:
        """A decode engine's run is over: what it said counts no more. What it was promised is kept."""
        self.expire(now)
        for pin in self._pins.values():
            pin.forget(run)

    def begin_write(self, request: str) -> None:
        """A write of this side reads the blocks: keep them until as many `end_write`. Raises HandleError."""
        pin = self._pins.get(request)
        if pin is None or pin.over:
            raise HandleError(f"request {request} cannot be written: {self._lost(request).text}")
        pin.writers += 1

    def end_write(self, request: str) -> None:
        """Raises HandleError where the request is not being written."""
        pin = self._pins.get(request)
        if pin is None or not pin.writers:
            raise HandleError(f"request {request} is not being written: end once what was begun once")
        pin.writers -= 1
        self._settle(pin)

    def remembers(self, request: str) -> bool:
        """Whether a request was pinned, and is one of the last 65,536 that were released."""
        return request in self._past

    def lasts(self, request: str, number: int) -> bool:
        """Whether this pin of a request is not over, as far as time was let pass."""
        pin = self._pins.get(request)
        return pin is not None and pin.number == number and not pin.over

    def withdraw(self, request: str, now: float) -> None:
        """Take no claims any more, and release once no claimant is promised anything. Once it is over, do nothing.

        Raises HandleError where the request was never pinned.
        """
        self.expire(now)
        pin = self._pins.get(request)
        if pin is None and request not in self._past:
            raise HandleError(f"request {request} cannot be withdrawn: {self._lost(request).text}")
        if pin is not None and pin.phase is PinPhase.KEPT:
            pin.on(PinEvent.WITHDRAWN)
            self._settle(pin)

    def expire(self, now: float) -> None:
        """Let time pass. Raises HandleError where `now` is no time."""
        self._tick(now)
        while self._alarms and self._alarms[0][0] <= self._now:
            alarm, request = heapq.heappop(self._alarms)
            pin = self._pins.get(request)
            if pin is not None and pin.alarm == alarm:
                pin.alarm = math.inf
                self._settle(pin)

    def released(self) -> list[Released]:
        """The requests whose blocks may be freed, each once: for the owner of the blocks."""
        reported = list(taken(self._untaken))
        self._unreported.difference_update(one.request for one in reported)
        return reported

    def just_released(self) -> list[Released]:
        """The same, each once, for those who have to tell others of it."""
        released, self._just_released = self._just_released, []
        return released

    def untaken(self) -> tuple[str, ...]:
        """The requests that `released` has still to report."""
        return tuple(dict.fromkeys([*(one.request for one in tuple(self._untaken)), *tuple(self._unreported)]))

    def untold(self) -> tuple[str, ...]:
        """The requests that `just_released` has still to report."""
        return tuple(one.request for one in self._just_released)

    def holds(self) -> tuple[HoldState, ...]:
        """All pins, as they are now."""
        return tuple(map(_state, self._pins.values()))

    def held(self) -> int:
        """How many requests are pinned now."""
        return len(self._pins)

    def _check_free(self, request: str) -> None:
        if request in self._pins or request in self._unreported:
            raise HandleError(f"request {request} is held: hold it again when released() has reported it")
        if len(self._pins) + len(self._unreported) >= self._most:
            raise LimitedError(
                f"{self._most} requests are held or not yet taken from released(), the most there may be"
            )

    def _tick(self, now: float) -> None:
        if not math.isfinite(now):
            raise HandleError(f"the clock says {now}: give a time in seconds")
        if now + self._shift < self._now - self._seconds:
            self._shift = self._now - now
        self._now = max(self._now, now + self._shift)

    def _settle(self, pin: Pin) -> None:
        """Release a pin that is over, unless this side writes it; else set its alarm."""
        due = pin.due()
        if not pin.over and due <= self._now:
            pin.lapse()
        if pin.phase is PinPhase.OVER and not pin.writers:
            self._release(pin)
        if not pin.over and due < pin.alarm:
            pin.alarm = due
            heapq.heappush(self._alarms, (due, pin.request))

    def _release(self, pin: Pin) -> None:
        pin.on(PinEvent.FREED)
        del self._pins[pin.request]
        self._remember(pin.request, _PastPin(pin.number, pin.reason, frozenset(pin.finished)))
        if len(self._alarms) > 1024 + 4 * len(self._pins):
            self._alarms = [(pin.alarm, name) for name, pin in self._pins.items() if pin.alarm < math.inf]
            heapq.heapify(self._alarms)

    def _remember(self, request: str, past: _PastPin) -> None:
        """A pin is over, which `released` says."""
        self._past[request] = past
        if len(self._past) > REMEMBERED:
            self._past.popitem(last=False)
        released = Released(request, past.reason)
        self._unreported.add(request)
        self._untaken.append(released)
        self._just_released.append(released)
        self.numbers[released.why] += 1

    def _refused(
        self, request: str, number: int, claimant: Claimant, contract: frozenset[int]
    ) -> tuple[MessageKind, str] | None:
        """The kind and the text of a Done that cannot be trusted."""
        if claimant.worker not in contract:
            return MessageKind.UNEXPECTED, _stranger(claimant, contract)
        pin = self._pins.get(request) or self._past.get(request)
        if pin is None:
            return MessageKind.UNKNOWN, self._lost(request).text
        if pin.number != number:
            text = f"request {request} was read under pin {number}, and has pin {pin.number}: read again"
            return MessageKind.STALE, text
        if isinstance(pin, _PastPin) or pin.over:
            again = claimant.pair in pin.finished
            return MessageKind.DUPLICATE if again else MessageKind.LATE, self._lost(request).text
        if claimant not in pin.claims:
            return MessageKind.STALE, _unclaimed(request, claimant)
        return None

    def _lost(self, request: str) -> Lost:
        """Why a request is not kept."""
        pin = self._pins.get(request) or self._past.get(request)
        if pin is None:
            text = f"request {request} is not held here, nor among the last {REMEMBERED} that were"
            advice = "call hold or open on every prefill worker first"
            return Lost(request, LossReason.UNKNOWN, f"{text}: {advice}")
        text = f"pin {pin.number} of request {request} is over, {pin.reason}: have it held anew, and ask again"
        return Lost(request, pin.reason, text)

    def _event(self, kind: MessageKind, request: str, claimant: Claimant, text: str = "") -> LeaseEvent:
        self.numbers[kind] += 1
        return LeaseEvent(kind, request, claimant.worker, text)


def taken(found: deque[T]) -> Iterator[T]:
    """Takes what is there, each once whoever takes, too."""
    with suppress(IndexError):
        while True:
            yield found.popleft()


def _state(pin: Pin) -> HoldState:
    promises = tuple((one.worker, one.run, until) for one, until in pin.claims.items() if until > NEVER)
    return HoldState(pin.request, pin.number, pin.phase.name.lower(), pin.until, promises, pin.writers)


def _stranger(claimant: Claimant, contract: frozenset[int]) -> str:
    return f"decode worker {claimant.worker} tells others, by plan {claimant.plan}; here {sorted(contract)} do"


def _unclaimed(request: str, claimant: Claimant) -> str:
    return f"decode worker {claimant.worker} of run {claimant.run} has no claim on request {request}: claim it first"
