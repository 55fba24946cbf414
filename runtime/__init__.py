"""What plans and engines use at run time. `__all__` is the public API, imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.runtime.catalog import Catalog
    from kvplan.runtime.checksum import Sample
    from kvplan.runtime.decode import DecodeWorker, Peer
    from kvplan.runtime.identity import Identity, scales
    from kvplan.runtime.inmemory import Hub, InMemory
    from kvplan.runtime.jit import Jit
    from kvplan.runtime.keys import Keys, Plain
    from kvplan.runtime.lease import Event, Released
    from kvplan.runtime.limits import Limits
    from kvplan.runtime.load import choose
    from kvplan.runtime.load import load as load_plan
    from kvplan.runtime.memory import Memory
    from kvplan.runtime.metrics import Counters
    from kvplan.runtime.nixl import Nixl
    from kvplan.runtime.outcome import Abandoned, Arrived, Broken, Expired
    from kvplan.runtime.plan import Blocks, Plan
    from kvplan.runtime.prefill import PrefillWorker
    from kvplan.runtime.register import Pool, views
    from kvplan.runtime.request import Request
    from kvplan.runtime.tables import Ring, Slot
    from kvplan.runtime.transfer import Transfer

_HOME = {
    "Abandoned": "outcome",
    "Arrived": "outcome",
    "Blocks": "plan",
    "Broken": "outcome",
    "Catalog": "catalog",
    "Counters": "metrics",
    "DecodeWorker": "decode",
    "Event": "lease",
    "Expired": "outcome",
    "Hub": "inmemory",
    "Identity": "identity",
    "InMemory": "inmemory",
    "Jit": "jit",
    "Keys": "keys",
    "Limits": "limits",
    "Memory": "memory",
    "Nixl": "nixl",
    "Peer": "decode",
    "Plain": "keys",
    "Plan": "plan",
    "Pool": "register",
    "PrefillWorker": "prefill",
    "Released": "lease",
    "Request": "request",
    "Ring": "tables",
    "Sample": "checksum",
    "Slot": "tables",
    "Transfer": "transfer",
    "choose": "load",
    "load_plan": "load",
    "scales": "identity",
    "views": "register",
}

__all__ = [
    "Abandoned",
    "Arrived",
    "Blocks",
    "Broken",
    "Catalog",
    "Counters",
    "DecodeWorker",
    "Event",
    "Expired",
    "Hub",
    "Identity",
    "InMemory",
    "Jit",
    "Keys",
    "Limits",
    "Memory",
    "Nixl",
    "Peer",
    "Plain",
    "Plan",
    "Pool",
    "PrefillWorker",
    "Released",
    "Request",
    "Ring",
    "Sample",
    "Slot",
    "Transfer",
    "choose",
    "load_plan",
    "scales",
    "views",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The function `load` has its module's name, which would hide it here once the module is imported.
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name.removesuffix("_plan"))
