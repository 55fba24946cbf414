"""The clock of deadlines and leases."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds that no change of the date moves, and that go on while the machine sleeps, where the system can tell."""
    return time.clock_gettime(_CLOCK)
