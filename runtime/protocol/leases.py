"""Leases: until when a prefill worker keeps a request's blocks. The worker alone decides.

A reader's claim is promised the blocks for one lease from then; its Done or Leave ends the promise. A hold ends
(`Hold.due`) one lease after it began, or after the last offer, claim or comparison of checksums; or with its last
promise once a whole run has said Done or the engine withdrew the request. Its blocks are free then. Only
`Leases.end_due` ends it by time, after all renewals were read.

The protocol is that of C. Gray and D. Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file
cache consistency" (SOSP 1989). Theirs is safe while clocks do not drift apart, ours also if they do: each hold has a
number that no other hold has. A reader learns it before its first read and names it after its last one: if that hold is
still there, it was there all the time. So a lease decides when unclaimed blocks are free, never whether what was read
is right. A push asks the same of itself: it says that it has written only while the hold is there (writes.py).
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvplan.plan.errors import BadRequestError
from kvplan.runtime.control.messages import LEASE_RANGE, Claimed, LossReason, Lost
from kvplan.runtime.errors import HandleError, LimitedError
from kvplan.runtime.inspection import HoldState
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.holds import LONG_AGO, MOST_RUNS, Claimant, Hold

# Past holds that are remembered.
REMEMBERED = 1 << 16
# The run and plan that have read a request without readers.
NOBODY = "", ""


class PastHold(NamedTuple):
    """A hold that has ended. It has no `number` if the request was declined, and never held."""

    number: int | None
    reason: LossReason
    finished_runs: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Released:
    """A request whose hold has ended, so that its blocks are free. `why` is finished, expired or withdrawn."""

    request: str
    why: str


class Leases:
    """The holds of a prefill worker. Times are seconds of one clock.

    `past` are the last 65,536 holds that ended, and requests that were declined, by request. `uncollected` are requests
    whose blocks are free, and no caller knows of that yet: they cannot be held again.

    Only `end_due` ends holds by time, so that none ends before its renewal is read. If the clock jumps forward, leases
    end early, and `done` returns that the hold has not lasted.
    """

    def __init__(self, seconds: float, most: int = 4096, first: int = 0) -> None:
        """Keep at most `most` requests, for leases of `seconds`. The first hold has number `first`.

        Choose `first` at random, so that no earlier process used these numbers. Raises BadRequestError.
        """
        self._seconds, self._most, self._next = checked_lease(seconds), most, first
        self.past, self.uncollected = OrderedDict[str, PastHold](), dict[str, None]()
        self._holds, self._heard_until = dict[str, Hold](), LONG_AGO
        self._ended: list[Lost] = []
        # A heap of (time, request) to check. An entry is outdated if its time is not the hold's `next_look`.
        self._timers: list[tuple[float, str]] = []

    def hold(self, request: str, now: float) -> int:
        """Keep a request's blocks for one lease, unless all have read it or it is withdrawn before.

        Returns the hold's number, which no other hold has.

        Raises HandleError if the request is held, or not yet `collected`; LimitedError above `most`.
        """
        return self._add(request, now + self._seconds).number

    def hold_without_readers(self, request: str) -> None:
        """Hold a request that no decode worker reads: it ends at once, as finished. Raises what `hold` raises."""
        hold = self._add(request, math.inf)
        hold.finished_runs.add(NOBODY)
        self._update(hold)

    def collected(self, requests: Iterable[str]) -> None:
        """Allow these requests to be held again: callers know that their blocks are free."""
        for request in requests:
            self.uncollected.pop(request, None)

    def offered(self, request: str, now: float) -> None:
        """Begin the lease of a held request again, because more of it was offered."""
        self._holds[request].extend(now + self._seconds)

    def claim(self, request: str, claimant: Claimant, contract: frozenset[int], claimed_at: float) -> Claimed | Lost:
        """Promise a claimant the blocks for one lease from when its claim was read, or return why not."""
        refused = self.refuses(request, claimant, contract)
        return self.promise(request, claimant, claimed_at) if refused is None else refused

    def promise(self, request: str, claimant: Claimant, claimed_at: float) -> Claimed:
        """Promise the blocks to a claimant that nothing `refuses`, for one lease from when its claim was read."""
        hold = self._holds[request]
        hold.make_room(claimant, self._heard_until)
        hold.promise(claimant, claimed_at + self._seconds)
        return Claimed(request, hold.number)

    def refuses(self, request: str, claimant: Claimant, contract: frozenset[int]) -> Lost | None:
        """Return why a claim is refused, or None."""
        if claimant.worker not in contract:
            return Lost(request, LossReason.UNEXPECTED, _stranger(claimant, contract))
        if (hold := self._holds.get(request)) is None or hold.withdrawn:
            return _lost(request, self._known(request))
        if runs := hold.runs_in_the_way(claimant, self._heard_until):
            text = f"claimed by {', '.join(runs)}: request {request} is read by {MOST_RUNS} runs already"
            return Lost(request, LossReason.CROWDED, text)
        if claimant in hold.promises and not hold.has_claimed(claimant):
            text = f"decode worker {claimant.worker} has claimed request {request} over a later connection"
            return Lost(request, LossReason.UNEXPECTED, text)
        return None

    def renew(self, request: str, number: int, claimant: Claimant, now: float) -> None:
        """Promise the blocks for one lease from `now`, to a claimant of this hold, unless it was withdrawn."""
        hold = self._kept(request, number)
        if hold is not None and not hold.withdrawn and hold.has_claimed(claimant):
            hold.promise(claimant, now + self._seconds)

    def done(self, request: str, number: int, claimant: Claimant, contract: frozenset[int]) -> tuple[MessageKind, str]:
        """End a claimant's promise: it has read all. Returns the kind of its Done, and why the hold has not lasted.

        The reason is empty if the hold has lasted. If not, the claimant may have read other bytes.
        """
        if (refused := _refused(request, self._known(request), number, claimant, contract)) is not None:
            return refused
        hold = self._holds[request]
        kind = hold.count_done(claimant, contract)
        self._update(hold)
        return kind, ""

    def leave(self, request: str, claimant: Claimant) -> MessageKind:
        """End the promise of a claimant that gives the request up. Returns left, stale, late or unknown."""
        if (hold := self._holds.get(request)) is None:
            return MessageKind.LATE if self._known(request) else MessageKind.UNKNOWN
        if not hold.has_claimed(claimant):
            return MessageKind.STALE
        hold.end_promise(claimant)
        self._update(hold)
        return MessageKind.LEFT

    def why_ended(self, request: str) -> str:
        """Return why a request is held no more: it was withdrawn, or its hold has ended; or that it never was."""
        return _lost(request, self._known(request)).text

    def lasts(self, request: str, number: int) -> bool:
        """Return whether this hold of a request has not ended, as of the last `end_due`."""
        return self._kept(request, number) is not None

    def withdrawn(self, request: str, number: int) -> bool:
        """Return whether this hold of a request was withdrawn and has not ended."""
        hold = self._kept(request, number)
        return hold is not None and hold.withdrawn

    def withdraw(self, request: str) -> None:
        """Refuse further claims, and end the hold with its last promise. Raises HandleError if it was never held."""
        hold = self._holds.get(request)
        if self._known(request) is None:
            raise HandleError(f"request {request} cannot be withdrawn: {_lost(request, None).text}")
        if hold is not None and not hold.withdrawn:
            hold.withdrawn = True
            self._update(hold)

    def decline(self, request: str) -> None:
        """Refuse claims of a request that will not be held. Raises HandleError if it is, or is not yet `collected`."""
        self._check_free(request)
        self._remember(request, PastHold(None, LossReason.WITHDRAWN, frozenset()))

    def end_due(self, heard_until: float) -> None:
        """End the holds that are due by `heard_until`. The caller has read every message that came until then."""
        self._heard_until = max(self._heard_until, heard_until)
        while self._timers and self._timers[0][0] <= heard_until:
            time, request = heapq.heappop(self._timers)
            hold = self._holds.get(request)
            if hold is not None and hold.next_look == time:
                hold.next_look = math.inf
                self._update(hold, heard_until)

    def take_ended(self) -> list[Lost]:
        """Return the messages for the readers of the holds that ended since the last call. Their blocks are free."""
        ended, self._ended = self._ended, []
        return ended

    def holds(self) -> tuple[HoldState, ...]:
        """Return the states of all holds."""
        return tuple(map(_state, self._holds.values()))

    def held(self) -> int:
        """Return how many requests are held. Safe to call from any thread."""
        return len(self._holds)

    def occupied(self) -> int:
        """Return how many requests count against the limit: held, or freed and not collected; from any thread."""
        return len(self._holds) + len(self.uncollected)

    def _add(self, request: str, lease_end: float) -> Hold:
        """Add a hold. Raises what `hold` raises."""
        self._check_free(request)
        if self.occupied() >= self._most:
            raise LimitedError(f"{self._most} requests are held, or not yet taken from released(): no more may be")
        hold = self._holds[request] = Hold(request, self._next, lease_end)
        self._next += 1
        self.past.pop(request, None)
        self._update(hold)
        return hold

    def _check_free(self, request: str) -> None:
        if request in self._holds or request in self.uncollected:
            raise HandleError(f"request {request} is held: use its name again when released() has reported it")

    def _kept(self, request: str, number: int) -> Hold | None:
        """Return the request's hold, if it has this number."""
        hold = self._holds.get(request)
        return None if hold is None or hold.number != number else hold

    def _known(self, request: str) -> Hold | PastHold | None:
        return self._holds.get(request) or self.past.get(request)

    def _update(self, hold: Hold, heard_until: float = LONG_AGO) -> None:
        """End a hold that is due by `heard_until`, or set when to check it next.

        Without `heard_until`, only a hold that waits for no time ends.
        """
        due = hold.due()
        if due <= heard_until:
            self._end(hold)
        elif due < hold.next_look:
            hold.next_look = due
            heapq.heappush(self._timers, (due, hold.request))

    def _end(self, hold: Hold) -> None:
        del self._holds[hold.request]
        past = PastHold(hold.number, hold.reason, frozenset(hold.finished_runs))
        self._remember(hold.request, past)
        self._ended.append(_lost(hold.request, past))
        self.uncollected[hold.request] = None
        if len(self._timers) > 1024 + 4 * len(self._holds):
            self._timers = [(hold.next_look, name) for name, hold in self._holds.items() if hold.next_look < math.inf]
            heapq.heapify(self._timers)

    def _remember(self, request: str, past: PastHold) -> None:
        self.past[request] = past
        self.past.move_to_end(request)
        if len(self.past) > REMEMBERED:
            self.past.popitem(last=False)


def checked_lease(seconds: object) -> float:
    """Return a lease as a float. Raises BadRequestError if it is no number of seconds within LEASE_RANGE."""
    low, high = LEASE_RANGE
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and low <= seconds <= high:
        return float(seconds)
    raise BadRequestError(f"a lease is a number of seconds from {low:g} to {high:,.0f}, not {ascii(seconds)[:80]}")


def _refused(
    request: str, hold: Hold | PastHold | None, number: int, claimant: Claimant, contract: frozenset[int]
) -> tuple[MessageKind, str] | None:
    """Return the kind of a Done that is refused, and why; None if it is accepted."""
    if claimant.worker not in contract:
        return MessageKind.UNEXPECTED, _stranger(claimant, contract)
    if hold is None:
        return MessageKind.UNKNOWN, _lost(request, hold).text
    if hold.number != number:
        held = f"request {request} was read under hold {number}, and is now hold {hold.number}: read again"
        return MessageKind.STALE, held if isinstance(hold, Hold) else _lost(request, hold).text
    if isinstance(hold, PastHold):
        again = claimant.run_and_plan in hold.finished_runs
        return MessageKind.DUPLICATE if again else MessageKind.LATE, _lost(request, hold).text
    if not hold.has_claimed(claimant):
        text = f"decode worker {claimant.worker} of run {claimant.run} has not claimed request {request}"
        return MessageKind.STALE, f"{text} over this connection"
    return None


def _lost(request: str, hold: Hold | PastHold | None) -> Lost:
    """Return the message that a request is not kept, and why."""
    if hold is None:
        text = f"request {request} is not held here, nor among the last {REMEMBERED} that were"
        advice = "call hold or open on every prefill worker first"
        return Lost(request, LossReason.UNKNOWN, f"{text}: {advice}")
    if isinstance(hold, Hold):
        return Lost(request, LossReason.WITHDRAWN, f"the prefill engine has withdrawn request {request}")
    given_up = hold.reason is LossReason.WITHDRAWN
    advice = "ask another engine, or compute it" if given_up else "have it held again, and ask again"
    ended = f"hold {hold.number} of request {request} has ended ({hold.reason})"
    declined = f"the prefill engine has declined request {request}"
    return Lost(request, hold.reason, f"{declined if hold.number is None else ended}: {advice}")


def _state(hold: Hold) -> HoldState:
    promises = tuple((one.worker, one.run, end) for one, (end, _) in hold.promises.items() if end > LONG_AGO)
    done = tuple(sorted((one.worker, one.run) for one in hold.done))
    return HoldState(hold.request, hold.number, hold.withdrawn, hold.due(), promises, done)


def _stranger(claimant: Claimant, contract: frozenset[int]) -> str:
    return f"decode worker {claimant.worker} is no reader of this prefill worker by plan {claimant.plan}"
