"""How slow this machine is now. Deadlines that a test waits for are scaled by it: none fails because time passed."""

from __future__ import annotations

import os
import time

# Open from the beginning: some tests leave their process no descriptor.
LOAD, CORES = os.open("/proc/loadavg", os.O_RDONLY), os.cpu_count() or 1


def slowness() -> float:
    """How many programs want each core, over the last minute or right now: 1 on an idle machine, and 10 at most."""
    last_minute, *_, running, _, _ = os.pread(LOAD, 100, 0).replace(b"/", b" ").split()
    # A hanging test may have spinning threads, so that its load must not lengthen the wait without end.
    return min(10.0, max(1.0, float(last_minute) / CORES, int(running) / CORES))


class Patience:
    """So many seconds of an idle machine: those that pass count the less, the slower this one is meanwhile."""

    def __init__(self, seconds: float) -> None:
        self._left, self._asked = seconds, time.monotonic()

    def lasts(self) -> bool:
        """Whether they are not over yet."""
        before, self._asked = self._asked, time.monotonic()
        self._left -= (self._asked - before) / slowness()
        return self._left > 0
