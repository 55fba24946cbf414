"""How long a prefill worker keeps a request's blocks: until all who read them have said so, or the lease is over.

A hold has a number. A reader learns it before its first read and names it after its last one; if the hold with that
number is still there, it was there all the time, whatever either side's clock did.
"""

from __future__ import annotations

import heapq
import itertools
import math
import secrets
from collections import Counter, OrderedDict
from typing import NamedTuple

from kvplan.runtime.errors import HandleError, LimitedError
from kvplan.runtime.prefill.pin import NEVER, PAIRS, Claimant, LeaseEvent, Pin, Released

__all__ = ["Claimant", "LeaseEvent", "Leases", "Released"]

REMEMBERED = 1 << 16

# Begins anywhere: a number that the process before this one gave is not taken for one of ours.
_NUMBERS = itertools.count(secrets.randbits(62))


class _Ended(NamedTuple):
    number: int
    ending: str
    finished: frozenset[tuple[str, str]]


class Leases:
    """The requests that a prefill worker holds. Times are seconds of one clock, which may jump; not thread-safe.

    A step back by less than a lease is waited out, a longer one followed: neither takes back what has passed. A jump
    forward ends leases early, and then `done` says so. `numbers` counts releases by why, and messages by kind.
    """

    def __init__(self, seconds: float, most: int = 4096) -> None:
        """Raises LimitedError where `seconds` is no length of time, or `most` requests are none."""
        if not 0 < seconds < math.inf or most < 1:
            raise LimitedError(f"a lease of {seconds} s for {most} requests: give a time above 0 and a number from 1")
        self._seconds, self._most = seconds, most
        self._now, self._shift = NEVER, 0.0
        self._holds: dict[str, Pin] = {}
        self._released: dict[str, Released] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._alarms: list[tuple[float, str]] = []
        self.numbers: Counter[str] = Counter()

    def hold(self, request: str, now: float) -> int:
        """Keep a request's blocks for a lease at least. Returns the hold's number, new in this process.

        Raises HandleError where it is held, or was and `released` has not said so yet; LimitedError above `most`.
        """
        self.expire(now)
        if request in self._holds or request in self._released:
            raise HandleError(f"request {request} is held: hold it again when released() has reported it")
        if len(self._holds) + len(self._released) >= self._most:
            raise LimitedError(
                f"{self._most} requests are held or not yet taken from released(), the most there may be"
            )
        hold = self._holds[request] = Pin(request, next(_NUMBERS), self._now + self._seconds)
        self._ended.pop(request, None)
        self._settle(hold)
        return hold.number

    def claim(self, request: str, claimant: Claimant, contract: frozenset[int], now: float) -> int | str:
        """Promise a claimant the blocks for a lease from now: the hold's number, or why not, as `kind: reason`."""
        self.expire(now)
        if claimant.worker not in contract:
            return f"unexpected: {_stranger(claimant, contract)}"
        hold = self._holds.get(request)
        if hold is None or hold.ending:
            return self._lost(request)
        if hold.withdrawn:
            return f"withdrawn: the prefill engine has given up request {request}"
        if crowd := hold.crowd(claimant, self._now):
            return f"claimed by {', '.join(crowd)}: request {request} is read by {PAIRS} pairs of run and plan already"
        hold.until = hold.claims[claimant] = self._now + self._seconds
        return hold.number

    def done(
        self, request: str, hold: int, claimant: Claimant, contract: frozenset[int], now: float
    ) -> tuple[str, LeaseEvent]:
        """A claimant reads no more. Returns why its reads may be of other bytes, or "" where the hold has lasted."""
        self.expire(now)
        refused = self._refused(request, hold, claimant, contract)
        if refused is not None:
            return refused[1], self._event(refused[0], request, claimant, refused[1])
        kind = self._holds[request].tell(claimant, contract)
        self._settle(self._holds[request])
        return "", self._event(kind, request, claimant)

    def leave(self, request: str, claimant: Claimant, now: float) -> LeaseEvent:
        """A claimant gives the request up, and reads no more."""
        self.expire(now)
        hold = self._holds.get(request)
        if hold is None or hold.ending:
            return self._event(
                "late" if hold or request in self._ended else "unknown", request, claimant, self._lost(request)
            )
        if claimant not in hold.claims:
            return self._event("stale", request, claimant, _unclaimed(request, claimant))
        hold.claims[claimant] = NEVER
        self._settle(hold)
        return self._event("left", request, claimant)

    def forget(self, run: str, now: float) -> None:
        """A decode engine's run is over: what it said counts no more. What it was promised is kept."""
        self.expire(now)
        for hold in self._holds.values():
            hold.forget(run)

    def pin(self, request: str) -> None:
        """Our own writes read the blocks: keep them until as many `unpin`. Raises HandleError where not held."""
        hold = self._holds.get(request)
        if hold is None or hold.ending:
            raise HandleError(f"request {request} cannot be pinned: {self._lost(request)}")
        hold.writers += 1

    def remembers(self, request: str) -> bool:
        """Whether a request was held, and is one of the last 65,536 that were released."""
        return request in self._ended

    def lasts(self, request: str, hold: int) -> bool:
        """Whether this hold of a request has not ended, as far as time was let pass."""
        found = self._holds.get(request)
        return found is not None and found.number == hold and not found.ending

    def unpin(self, request: str) -> None:
        """Raises HandleError where the request is not pinned."""
        hold = self._holds.get(request)
        if hold is None or not hold.writers:
            raise HandleError(f"request {request} is not pinned: unpin once for each pin")
        hold.writers -= 1
        self._settle(hold)

    def withdraw(self, request: str, now: float) -> None:
        """Take no claims any more, and release once no claimant is promised anything. Ended before, it does nothing.

        Raises HandleError where the request was never held.
        """
        self.expire(now)
        hold = self._holds.get(request)
        if hold is None and request not in self._ended:
            raise HandleError(f"request {request} cannot be withdrawn: {self._lost(request)}")
        if hold is not None:
            hold.withdrawn = True
            self._settle(hold)

    def expire(self, now: float) -> None:
        """Let time pass. Raises HandleError where `now` is no time."""
        self._tick(now)
        while self._alarms and self._alarms[0][0] <= self._now:
            alarm, request = heapq.heappop(self._alarms)
            hold = self._holds.get(request)
            if hold is not None and hold.alarm == alarm:
                hold.alarm = math.inf
                self._settle(hold)

    def released(self) -> list[Released]:
        """The requests whose blocks may be freed, each once."""
        found, self._released = list(self._released.values()), {}
        return found

    def held(self) -> int:
        """How many requests are held now."""
        return len(self._holds)

    def _tick(self, now: float) -> None:
        if not math.isfinite(now):
            raise HandleError(f"the clock says {now}: give a time in seconds")
        if now + self._shift < self._now - self._seconds:
            self._shift = self._now - now
        self._now = max(self._now, now + self._shift)

    def _settle(self, hold: Pin) -> None:
        """Release a hold that is over, unless it is pinned; else set its alarm."""
        due = hold.due()
        if not hold.ending and due <= self._now:
            hold.ending = hold.why()
        if hold.ending and not hold.writers:
            self._release(hold)
        if not hold.ending and due < hold.alarm:
            hold.alarm = due
            heapq.heappush(self._alarms, (due, hold.request))

    def _release(self, hold: Pin) -> None:
        del self._holds[hold.request]
        self._ended[hold.request] = _Ended(hold.number, hold.ending, frozenset(hold.finished))
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        self._released[hold.request] = Released(hold.request, hold.ending)
        self.numbers[hold.ending] += 1
        if len(self._alarms) > 1024 + 4 * len(self._holds):
            self._alarms = [(hold.alarm, name) for name, hold in self._holds.items() if hold.alarm < math.inf]
            heapq.heapify(self._alarms)

    def _refused(
        self, request: str, number: int, claimant: Claimant, contract: frozenset[int]
    ) -> tuple[str, str] | None:
        """The kind and the text of a Done that cannot be trusted."""
        if claimant.worker not in contract:
            return "unexpected", _stranger(claimant, contract)
        current = self._holds.get(request) or self._ended.get(request)
        if current is None:
            return "unknown", self._lost(request)
        if current.number != number:
            return "stale", f"request {request} was read under hold {number}, and has hold {current.number}: read again"
        if current.ending:
            return ("duplicate" if claimant.pair in current.finished else "late"), self._lost(request)
        if isinstance(current, Pin) and claimant not in current.claims:
            return "stale", _unclaimed(request, claimant)
        return None

    def _lost(self, request: str) -> str:
        """Why a request is not held."""
        ended = self._holds.get(request) or self._ended.get(request)
        if ended is None:
            text = f"unknown: request {request} is not held here, nor among the last {REMEMBERED} that were"
            return f"{text}: call hold or open on every prefill worker first"
        return f"{ended.ending}: hold {ended.number} of request {request} is over: have it held anew, and ask again"

    def _event(self, kind: str, request: str, claimant: Claimant, text: str = "") -> LeaseEvent:
        self.numbers[kind] += 1
        return LeaseEvent(kind, request, claimant.worker, text)


def _stranger(claimant: Claimant, contract: frozenset[int]) -> str:
    return f"decode worker {claimant.worker} tells others, by plan {claimant.plan}; here {sorted(contract)} do"


def _unclaimed(request: str, claimant: Claimant) -> str:
    return f"decode worker {claimant.worker} of run {claimant.run} has no claim on request {request}: claim it first"
