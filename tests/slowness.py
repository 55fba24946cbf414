"""How slow this machine is now. Deadlines that a test waits for are scaled by it: none fails because time passed."""

from __future__ import annotations

import os


def slowness() -> float:
    """How many programs want each core, over the last minute: 1 on an idle machine."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
