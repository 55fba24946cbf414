"""The program ends while a thread of the caller carries out the workers' steps."""

from __future__ import annotations

import sys
import threading
import time

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, never

made = begin(start=False)
transfer = never(made)


def drive() -> None:
    while True:
        for worker in (*made.prefill, *made.decode):
            worker.run_once()


threading.Thread(target=drive, daemon=True).start()
time.sleep(0.1)
print("ended")
