"""The program ends while a thread of the caller waits for a request that does not end."""

from __future__ import annotations

import sys
import threading
import time

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, never

made = begin(start=True)
transfer = never(made)
threading.Thread(target=transfer.wait, daemon=True).start()
time.sleep(0.1)
print("ended")
