"""The program ends while a thread of the caller waits for a request that does not end."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, never

from kvplan.runtime.errors import HandleError

made = begin(start=True)
transfer = never(made)


def wait() -> None:
    # The program ends: nobody carries the request on.
    with suppress(HandleError):
        transfer.wait()


threading.Thread(target=wait, daemon=True).start()
time.sleep(0.1)
print("ended")
