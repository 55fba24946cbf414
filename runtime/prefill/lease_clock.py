"""The clock of leases: it stands still while nobody listens, and says until when all renewals were heard."""

from __future__ import annotations

import time
from collections.abc import Callable

LEASE = 30.0
# Seconds that a step may come after the one before. More is time in which this worker did not listen, as its thread
# waited for a core or its process stood still: no lease runs out in it, as its renewals may have come.
LISTENING = 1.0


class LeaseClock:
    """The time of `clock` without that in which nobody listened: what peers said then could not be heard.

    Time beyond LISTENING seconds since the last `listen`, by `pulse`, does not count; time in which the machine sleeps
    does. A `lease` has so many seconds. Not safe from threads.
    """

    def __init__(self, clock: Callable[[], float], lease: float, pulse: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lease, self._pulse = clock, lease, pulse
        self._unheard, self._listened, self._all_heard = 0.0, pulse(), clock()

    def __call__(self) -> float:
        # The clock first: a thread that stands still in between has not listened either.
        time = self._clock()
        return time - self._unheard_by(self._pulse())

    def listen(self) -> float:
        """The time, now that somebody listens."""
        time, pulse = self._clock(), self._pulse()
        self._unheard, self._listened = self._unheard_by(pulse), pulse
        return time - self._unheard

    def heard_until(self, now: float, *, unread: bool) -> float:
        """Until when all renewals are heard. Messages that are `unread` delay a lease's end by one lease at most."""
        if not unread:
            self._all_heard = now
        return max(self._all_heard, now - self._lease)

    def _unheard_by(self, pulse: float) -> float:
        return self._unheard + max(0.0, pulse - self._listened - LISTENING)
