"""Waiting until something is so: the longer the slower this machine is now, and no test passes for having waited."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.slowness import slowness

SECONDS = 20.0


def until(
    met: Callable[[], object], *steps: Callable[[], object], seconds: float = SECONDS, pause: float = 1e-3
) -> None:
    """Do `steps` again and again until `met`; fails after a while."""
    end = time.monotonic() + seconds * slowness()
    while not met():
        assert time.monotonic() < end, "it did not come true in time"
        for step in steps:
            step()
        time.sleep(pause)
