"""The runtime that executes plans. `__all__` is its public API; each name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.plan.block_tables import Ring, Slot
    from kvplan.plan.files.loader import choose, load_plan
    from kvplan.plan.request import Request
    from kvplan.plan.types import Blocks, Plan
    from kvplan.runtime.checksum.checksum import Sample
    from kvplan.runtime.control.identity import Identity, revision_of, scales
    from kvplan.runtime.control.keys import Keys, Plain
    from kvplan.runtime.decode.prefill_engine import Peer
    from kvplan.runtime.decode.transfer import Transfer
    from kvplan.runtime.decode.worker import DecodeWorker
    from kvplan.runtime.memory.arrays import Memory
    from kvplan.runtime.memory.register import Pool, views
    from kvplan.runtime.ops.metrics import Counters
    from kvplan.runtime.plans.catalog import Catalog
    from kvplan.runtime.plans.jit import Jit
    from kvplan.runtime.prefill.worker import PrefillWorker
    from kvplan.runtime.protocol.leases import Released
    from kvplan.runtime.transfer.limits import Limits
    from kvplan.runtime.transport.inmemory import Hub, InMemory
    from kvplan.runtime.transport.nixl import Nixl

_HOME = {
    "plan.block_tables": ("Ring", "Slot"),
    "plan.files.loader": ("choose", "load_plan"),
    "plan.request": ("Request",),
    "plan.types": ("Blocks", "Plan"),
    "runtime.checksum.checksum": ("Sample",),
    "runtime.control.identity": ("Identity", "revision_of", "scales"),
    "runtime.control.keys": ("Keys", "Plain"),
    "runtime.decode.prefill_engine": ("Peer",),
    "runtime.decode.transfer": ("Transfer",),
    "runtime.decode.worker": ("DecodeWorker",),
    "runtime.memory.arrays": ("Memory",),
    "runtime.memory.register": ("Pool", "views"),
    "runtime.ops.metrics": ("Counters",),
    "runtime.plans.catalog": ("Catalog",),
    "runtime.plans.jit": ("Jit",),
    "runtime.protocol.leases": ("Released",),
    "runtime.prefill.worker": ("PrefillWorker",),
    "runtime.transfer.limits": ("Limits",),
    "runtime.transport.inmemory": ("Hub", "InMemory"),
    "runtime.transport.nixl": ("Nixl",),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Blocks", "Catalog", "Counters", "DecodeWorker", "Hub", "Identity",
    "InMemory", "Jit", "Keys", "Limits", "Memory", "Nixl", "Peer", "Plain", "Plan", "Pool",
    "PrefillWorker", "Released", "Request", "Ring", "Sample", "Slot", "Transfer", "choose", "load_plan",
    "revision_of", "scales", "views",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Stored in this module, so that later lookups do not call this function.
    found = globals()[name] = getattr(importlib.import_module(f"kvplan.{_MODULES[name]}"), name)
    return found
