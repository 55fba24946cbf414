"""A handler of the program's own end, which comes after the workers' end, closes a worker and calls another."""

from __future__ import annotations

import atexit
import sys

sys.path.insert(0, ".")


def last() -> None:
    made.decode[0].close()
    try:
        made.prefill[0].hold("late")
    except HandleError:
        print("ended")


atexit.register(last)

from tests.runtime.helpers.endings import begin, move  # noqa: E402

from kvplan.runtime.errors import HandleError  # noqa: E402

made = begin(start=True)
move(made, "a")
