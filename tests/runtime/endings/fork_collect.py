"""A forked child drops the workers that it inherited, and collects garbage."""

from __future__ import annotations

import gc
import os
import sys

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, move

made = begin(start=False)
move(made, "a")
child = os.fork()
if not child:
    del made
    gc.collect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for number in range(3):
    move(made, f"b{number}")
made.close()
print("ended")
