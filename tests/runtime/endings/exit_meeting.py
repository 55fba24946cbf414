"""The program ends while an engine is being met in the background."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin

made = begin(start=True)
made.decode[0].drop("prefill")
made.decode[0].connect_soon(made.prefill[0].address, 30)
made.decode[0].connect_soon("tcp://127.0.0.1:9", 30)
time.sleep(0.01)
print("ended")
