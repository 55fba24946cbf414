"""Lease clock: stands still while this worker reads no messages, so that a lease ends after its renewals are read."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds that may pass between two steps. Beyond that this worker did not listen, because its thread waited for a core
# or its process stood still. No lease ends in that time, because its renewals may have come unread.
LONGEST_PAUSE = 1.0


class LeaseClock:
    """The time of `clock` without the time in which this worker did not listen and could not read renewals.

    Time beyond LONGEST_PAUSE seconds since the last `advance`, by `pulse`, does not count; machine sleep does. `lease`
    is in seconds. Not safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float], lease: float, pulse: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lease, self._pulse = clock, lease, pulse
        self._paused, self._listened, self._all_heard = 0.0, pulse(), clock()

    def __call__(self) -> float:
        # Read the clock first: if the thread stops in between, that is time without listening, too.
        time = self._clock()
        return time - self._paused_by(self._pulse())

    def advance(self) -> float:
        """Note that this worker listens now, and return the time."""
        time, pulse = self._clock(), self._pulse()
        self._paused, self._listened = self._paused_by(pulse), pulse
        return time - self._paused

    def heard_until(self, now: float, *, unread: bool) -> float:
        """Return until when all renewals are read. `unread` messages delay a lease's end by one lease at most."""
        if not unread:
            self._all_heard = now
        return max(self._all_heard, now - self._lease)

    def _paused_by(self, pulse: float) -> float:
        return self._paused + max(0.0, pulse - self._listened - LONGEST_PAUSE)
