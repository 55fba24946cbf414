"""Waiting until something is so: the longer the slower this machine is now, and no test passes for having waited."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.slowness import Patience

SECONDS = 60.0


def until(
    met: Callable[[], object], *steps: Callable[[], object], seconds: float = SECONDS, pause: float = 1e-3
) -> None:
    """Do `steps` again and again until `met`; fails after a while."""
    patience = Patience(seconds)
    while not met():
        assert patience.lasts(), "it did not come true in time"
        for step in steps:
            step()
        time.sleep(pause)
