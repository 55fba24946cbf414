"""What plans and engines use at run time. `__all__` is the public API, imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.runtime.inmemory import Hub, InMemory
    from kvplan.runtime.load import choose
    from kvplan.runtime.load import load as load_plan
    from kvplan.runtime.memory import Memory
    from kvplan.runtime.nixl import Nixl
    from kvplan.runtime.plan import Blocks, Plan
    from kvplan.runtime.pull import Puller
    from kvplan.runtime.register import Pool, views
    from kvplan.runtime.request import Request
    from kvplan.runtime.server import Event, PrefillWorker
    from kvplan.runtime.tables import Ring, Slot
    from kvplan.runtime.transfer import Transfer

_HOME = {
    "Blocks": "plan",
    "Event": "server",
    "Hub": "inmemory",
    "InMemory": "inmemory",
    "Memory": "memory",
    "Nixl": "nixl",
    "Plan": "plan",
    "Pool": "register",
    "PrefillWorker": "server",
    "Puller": "pull",
    "Request": "request",
    "Ring": "tables",
    "Slot": "tables",
    "Transfer": "transfer",
    "choose": "load",
    "load_plan": "load",
    "views": "register",
}

__all__ = [
    "Blocks",
    "Event",
    "Hub",
    "InMemory",
    "Memory",
    "Nixl",
    "Plan",
    "Pool",
    "PrefillWorker",
    "Puller",
    "Request",
    "Ring",
    "Slot",
    "Transfer",
    "choose",
    "load_plan",
    "views",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The function `load` has its module's name, which would hide it here once the module is imported.
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name.removesuffix("_plan"))
