"""A forked child ends in the ordinary way: nothing happens to its parent's workers, which nobody started."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, move

made = begin(start=False)
move(made, "a")
child = os.fork()
if not child:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for number in range(3):
    move(made, f"b{number}")
made.close()
print("ended")
