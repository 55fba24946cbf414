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
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from kvplan.runtime.control.messages import LEASES, Claimed, LossReason, Lost
from kvplan.runtime.errors import HandleError, LeaseError, LimitedError
from kvplan.runtime.inspection import HoldState
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.pins import MOST_RUNS, NEVER, UNPROMISED, Claimant, PastPin, Pin, PinEvent, PinPhase

REMEMBERED = 1 << 16


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

    def __contains__(self, request: object) -> bool:
        return request in self._all

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

    Only `expire` ends leases by time, so that none ends while its renewal is unread. A clock that jumps forward ends
    leases early, and `done` says so.
    """

    def __init__(self, seconds: float, most: int = 4096, first: int = 0) -> None:
        """`first` is the first pin's number. Begin anywhere, so that no number is one of an earlier process.

        Raises LimitedError where `seconds` is no length of a lease, or `most` requests are none.
        """
        low, high = LEASES
        if not low <= seconds <= high or most < 1:
            text = f"a lease of {seconds:g} s for {most} requests"
            raise LimitedError(f"{text}: give {low:g} to {high:,.0f} seconds and a number from 1")
        self._seconds, self._most, self._next = seconds, most, first
        self.past, self._pins, self._expired_until = PastPins(), dict[str, Pin](), NEVER
        # When to look at which pin again, a heap. A time that its pin does not name is outdated.
        self._timers: list[tuple[float, str]] = []

    def pin(self, request: str, now: float) -> int:
        """Keep a request's blocks for a lease at least. Returns the pin's number, which no other pin has.

        Raises HandleError where it is pinned, or was and that is not `collected` yet; LimitedError above `most`.
        """
        self._check_free(request)
        pin = self._pins[request] = Pin(request, self._number(), now + self._seconds)
        self.past.forget(request)
        self._update(pin)
        return pin.number

    def pass_by(self, request: str) -> None:
        """Release a request at once, finished, that nobody will ever read. Raises as `pin` does."""
        self._check_free(request)
        self.past.add(request, PastPin(self._number(), LossReason.FINISHED, frozenset()))

    def claim(self, request: str, claimant: Claimant, contract: frozenset[int], now: float) -> Claimed | Lost:
        """Promise a claimant the blocks for a lease from now, or say why not."""
        refused = self.refuses(request, claimant, contract)
        if refused is not None:
            return refused
        pin = self._pins[request]
        pin.promise(claimant, now + self._seconds)
        return Claimed(request, pin.number)

    def refuses(self, request: str, claimant: Claimant, contract: frozenset[int]) -> Lost | None:
        """Why a claim is refused, None if it is not."""
        if claimant.worker not in contract:
            return Lost(request, LossReason.UNEXPECTED, _stranger(claimant, contract))
        pin = self._pins.get(request)
        if pin is None or pin.over:
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
        pin = self._pins.get(request)
        if pin and pin.number == number and pin.phase is PinPhase.HELD and pin.promised(claimant):
            pin.promise(claimant, now + self._seconds)

    def done(self, request: str, number: int, claimant: Claimant, contract: frozenset[int]) -> tuple[MessageKind, str]:
        """A claimant reads no more: what that counts as, and why the pin has not lasted, empty if it has.

        If it has not, the claimant may have read other bytes.
        """
        refused = _refused(request, self._known(request), number, claimant, contract)
        if refused is not None:
            return refused
        pin = self._pins[request]
        kind = pin.count_done(claimant, contract)
        self._update(pin)
        return kind, ""

    def leave(self, request: str, claimant: Claimant) -> MessageKind:
        """A claimant gives the request up: what it may still read, it trusts no more.

        What that counts as: left, stale, late or unknown.
        """
        pin = self._pins.get(request)
        if pin is None or pin.over:
            return MessageKind.LATE if pin or request in self.past else MessageKind.UNKNOWN
        if not pin.promised(claimant):
            return MessageKind.STALE
        pin.end_promise(claimant)
        self._update(pin)
        return MessageKind.LEFT

    def begin_write(self, request: str) -> None:
        """A write of this side reads the blocks: keep them until as many `end_write`. Raises LeaseError."""
        pin = self._pins.get(request)
        if pin is None or pin.over:
            raise LeaseError(f"request {request} cannot be written: {_lost(request, self._known(request)).text}")
        pin.writers += 1

    def end_write(self, request: str) -> None:
        """Raises HandleError where the request is not being written."""
        pin = self._pins.get(request)
        if pin is None or not pin.writers:
            raise HandleError(f"request {request} is not being written: end once what was begun once")
        pin.writers -= 1
        self._update(pin)

    def lasts(self, request: str, number: int) -> bool:
        """Whether this pin of a request is not over, as of the last `expire`."""
        pin = self._pins.get(request)
        return pin is not None and pin.number == number and not pin.over

    def withdrawn(self, request: str, number: int) -> bool:
        """Whether this pin of a request was withdrawn, and is not over."""
        pin = self._pins.get(request)
        return pin is not None and pin.number == number and pin.phase is PinPhase.WITHDRAWN

    def withdraw(self, request: str) -> None:
        """Take no claims any more, and release once no claimant is promised anything. Once it is over, do nothing.

        Raises HandleError where the request was never pinned.
        """
        pin = self._pins.get(request)
        if pin is None and request not in self.past:
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

    def _known(self, request: str) -> Pin | PastPin | None:
        return self._pins.get(request) or self.past.get(request)

    def _check_free(self, request: str) -> None:
        if request in self._pins or request in self.past.uncollected:
            raise HandleError(f"request {request} is held: hold it again when released() has reported it")
        if len(self._pins) + len(self.past.uncollected) >= self._most:
            raise LimitedError(
                f"{self._most} requests are held or not yet taken from released(), the most there may be"
            )

    def _update(self, pin: Pin, heard: float = NEVER) -> None:
        """Lapse a pin that nobody is promised by `heard`, or at all; release it if nothing here writes from it; else
        set when to look at it next."""
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
        return MessageKind.STALE, _unclaimed(request, claimant)
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
    promises = tuple((one.worker, one.run, end) for one, (end, _) in pin.promises.items() if end > UNPROMISED)
    return HoldState(pin.request, pin.number, pin.phase.name.lower(), pin.lease_end, promises, pin.writers)


def _stranger(claimant: Claimant, contract: frozenset[int]) -> str:
    return f"decode worker {claimant.worker} is no reader of this prefill worker by plan {claimant.plan}"


def _unclaimed(request: str, claimant: Claimant) -> str:
    return (
        f"decode worker {claimant.worker} of run {claimant.run} has not claimed request {request} over this connection"
    )
