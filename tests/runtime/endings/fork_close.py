"""A forked child closes the workers that it inherited: nothing happens to the parent's."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, ".")

from tests.runtime.helpers.endings import begin, move

made = begin(start=True)
move(made, "a")
child = os.fork()
if not child:
    for worker in (*made.decode, *made.prefill):
        worker.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
move(made, "b")
made.close()
print("ended")
