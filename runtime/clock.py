"""The clock of deadlines and leases, and the lengths of time that callers give."""

from __future__ import annotations

import time
from numbers import Real

from kvplan.runtime.errors import KvplanError

LONGEST_TIMEOUT = 1e9
# The most seconds that one step counts for: if a step takes longer, the caller has paused polling.
LONGEST_STEP = 0.1
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return monotonic seconds, which include the time that the machine sleeps if the system has such a clock."""
    return time.clock_gettime(_CLOCK)


def seconds(timeout: object, error: type[KvplanError]) -> float:
    """Return a timeout as a float that can be added to the time. Raises `error` if it is none."""
    if type(timeout) is float and 0 <= timeout < LONGEST_TIMEOUT:
        return timeout
    if isinstance(timeout, Real) and not isinstance(timeout, bool) and not timeout < 0 and timeout < LONGEST_TIMEOUT:
        return float(timeout)
    text = f"a timeout is a number of seconds from 0 to below {LONGEST_TIMEOUT:.0f}"
    raise error(f"{text}, not {ascii(timeout)[:80]}")


def counted(began: float, before: float) -> float:
    """Return the seconds between the starts of two steps, at most LONGEST_STEP."""
    return min(began - before, LONGEST_STEP)
