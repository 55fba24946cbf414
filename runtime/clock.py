"""The clock of deadlines and leases, and the lengths of time that callers give."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real

from kvplan.runtime.errors import KvplanError

LONGEST_TIMEOUT = 1e9
# Seconds of a round that count: who polls has paused where it takes longer.
LONGEST_ROUND = 0.1
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds that no change of the date moves, and that go on while the machine sleeps, where the system can tell."""
    return time.clock_gettime(_CLOCK)


def seconds(timeout: object, error: type[KvplanError]) -> float:
    """A timeout as a number that can be added to the time. Raises `error`."""
    if type(timeout) is float and 0 <= timeout < LONGEST_TIMEOUT:
        return timeout
    if isinstance(timeout, Real) and not isinstance(timeout, bool) and not timeout < 0 and timeout < LONGEST_TIMEOUT:
        return float(timeout)
    text = f"a timeout is a number of seconds from 0 to below {LONGEST_TIMEOUT:.0f}"
    raise error(f"{text}, not {ascii(timeout)[:80]}")


def counted(began: float, before: float) -> float:
    """Seconds between the begins of two rounds of who polls, as far as they count."""
    return min(began - before, LONGEST_ROUND)


class ListeningClock:
    """The time of `clock` without that in which nobody listened: what peers said then could not be heard.

    Time beyond `pause` seconds since the last `listen`, by `pulse`, does not count; time in which the machine sleeps
    does. Not safe from threads.
    """

    def __init__(self, clock: Callable[[], float], pause: float, pulse: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._pause, self._pulse = clock, pause, pulse
        self._unheard, self._listened = 0.0, pulse()

    def __call__(self) -> float:
        # The clock first: a thread that stands still in between has not listened either.
        time = self._clock()
        return time - self._unheard_by(self._pulse())

    def listen(self) -> float:
        """The time, now that somebody listens."""
        time, pulse = self._clock(), self._pulse()
        self._unheard, self._listened = self._unheard_by(pulse), pulse
        return time - self._unheard

    def _unheard_by(self, pulse: float) -> float:
        return self._unheard + max(0.0, pulse - self._listened - self._pause)
