"""The program ends while a thread of the caller carries out the workers' steps."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, never

from kvplan.runtime.errors import HandleError

made = begin(start=False)
transfer = never(made)


def drive() -> None:
    # The program ends: workers do nothing any more.
    with suppress(HandleError):
        while True:
            for worker in (*made.prefill, *made.decode):
                worker.run_once()


threading.Thread(target=drive, daemon=True).start()
time.sleep(0.1)
print("ended")
