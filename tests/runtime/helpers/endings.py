"""What the programs of tests/runtime/endings have in common: engines over memory or NIXL, and requests that move."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, clear, filled
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Transfer


def begin(*, start: bool) -> World:
    """Two engines that have met, each with a thread of its own or none."""
    made = world(Shape(1), Shape(1), nixl=sys.argv[1] == "nixl", start=start)
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
