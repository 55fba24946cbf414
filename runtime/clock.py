"""The clock of deadlines and leases, and the lengths of time that callers give."""

from __future__ import annotations

import time
from numbers import Real

from kvplan.runtime.errors import KvplanError

LONGEST_TIMEOUT = 1e9
# Seconds of a step that count: who polls has paused where it takes longer.
LONGEST_STEP = 0.1
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
    """Seconds between the begins of two steps of who polls, as far as they count."""
    return min(began - before, LONGEST_STEP)
