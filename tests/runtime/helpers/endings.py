"""Programs that end or fork while workers live: `python -m tests.runtime.helpers.endings NAME TRANSPORT`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

# Objects that live until the program's end.
KEPT: list[object] = []
# Called after the workers' end: it is registered before kvplan is imported.
LAST: list[Callable[[], None]] = []
atexit.register(lambda: [last() for last in LAST])

from tests.runtime.helpers.plans import Shape  # noqa: E402
from tests.runtime.helpers.requests import ask, check, clear, filled  # noqa: E402
from tests.runtime.helpers.worlds import World, world  # noqa: E402

from kvplan.runtime import Transfer  # noqa: E402
from kvplan.runtime.errors import HandleError  # noqa: E402


def exit_atexit() -> None:
    """A handler of the program's own end closes a worker and calls another."""
    made = begin(start=True)

    def last() -> None:
        made.decode[0].close()
        try:
            made.prefill[0].hold("late")
        except HandleError:
            print("ended")

    LAST.append(last)
    move(made, "a")


def exit_driving() -> None:
    """The program ends while a thread of the caller carries out the workers' steps."""
    made = begin(start=False)
    never(made)

    def drive() -> None:
        while True:
            for worker in (*made.prefill, *made.decode):
                worker.run_once()

    beside(drive)


def exit_waiting() -> None:
    """The program ends while a thread of the caller waits for a request that does not end."""
    beside(never(begin(start=True)).wait)


def exit_meeting() -> None:
    """The program ends while an engine is being met in the background."""
    made = begin(start=True)
    made.decode[0].drop("prefill")
    made.decode[0].connect_soon(made.prefill[0].address, 30)
    made.decode[0].connect_soon("tcp://127.0.0.1:9", 30)
    time.sleep(0.01)
    print("ended")


def fork_close() -> None:
    """A forked child closes the workers that it inherited: nothing happens to the parent's."""

    def child(made: World) -> None:
        for worker in (*made.decode, *made.prefill):
            worker.close()

    forked(child, start=True)


def fork_collect() -> None:
    """A forked child drops the workers that it inherited, and collects garbage."""

    def child(made: World) -> None:
        KEPT.clear()
        made.decode.clear()
        made.prefill.clear()
        gc.collect()

    forked(child, start=False)


def fork_exit() -> None:
    """A forked child ends in the ordinary way: nothing happens to its parent's workers, which nobody started."""
    forked(lambda made: None, start=False)


def beside(call: Callable[[], object]) -> None:
    """A thread of the caller is in a call when the program ends. Workers do nothing any more then."""

    def run() -> None:
        with suppress(HandleError):
            call()

    threading.Thread(target=run, daemon=True).start()
    time.sleep(0.1)
    print("ended")


def forked(child: Callable[[World], None], *, start: bool) -> None:
    """Requests move in the parent, before and after a child has ended."""
    made = begin(start=start)
    move(made, "a")
    pid = os.fork()
    if not pid:
        child(made)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    for number in range(3):
        move(made, f"b{number}")
    made.close()
    print("ended")


def begin(*, start: bool) -> World:
    """Two engines that have met, each with a thread of its own or none."""
    made = world(Shape(1), Shape(1), nixl=sys.argv[2] == "nixl", start=start)
    KEPT.append(made)
    if start:
        made.decode[0].start()
    return made


def move(made: World, name: str) -> None:
    """A request moves, and every byte of it is there."""
    clear(made)
    request = ask(made, (0, 12), name=name)
    filled(made, request)
    made.prefill[0].hold(name, request.prefill)
    transfer = made.decode[0].submit(request, 20)
    while not transfer.ended:
        for worker in (*made.prefill, *made.decode):
            worker.run_once()
    assert transfer.state == "done", transfer.error
    check(made, 0, request)


def never(made: World) -> Transfer:
    """A request that prefill does not finish."""
    made.prefill[0].hold("never", after=SimpleNamespace(query=lambda: False))
    return made.decode[0].submit(ask(made, (0, 12), name="never"), 60)


PROGRAMS = {one.__name__: one for one in (
    exit_atexit, exit_driving, exit_waiting, exit_meeting, fork_close, fork_collect, fork_exit
)}  # fmt: skip
if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
