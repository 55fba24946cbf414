"""What plans and engines use at run time. `__all__` is the public API, imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.plan.block_tables import Ring, Slot
    from kvplan.plan.loader import choose, load_plan
    from kvplan.plan.request import Request
    from kvplan.plan.types import Blocks, Plan
    from kvplan.runtime.checksum.checksum import Sample
    from kvplan.runtime.control.identity import Identity, scales
    from kvplan.runtime.control.keys import Keys, Plain
    from kvplan.runtime.decode.outcome import Abandoned, Arrived, Broken, Expired
    from kvplan.runtime.decode.transfer import Transfer
    from kvplan.runtime.decode.worker import DecodeWorker, Peer
    from kvplan.runtime.memory.arrays import Memory
    from kvplan.runtime.memory.register import Pool, views
    from kvplan.runtime.ops.metrics import Counters
    from kvplan.runtime.plans.catalog import Catalog
    from kvplan.runtime.plans.jit import Jit
    from kvplan.runtime.prefill.lease import LeaseEvent, Released
    from kvplan.runtime.prefill.worker import PrefillWorker
    from kvplan.runtime.transfer.limits import Limits
    from kvplan.runtime.transport.inmemory import Hub, InMemory
    from kvplan.runtime.transport.nixl import Nixl

_HOME = {
    "Abandoned": "kvplan.runtime.decode.outcome",
    "Arrived": "kvplan.runtime.decode.outcome",
    "Blocks": "kvplan.plan.types",
    "Broken": "kvplan.runtime.decode.outcome",
    "Catalog": "kvplan.runtime.plans.catalog",
    "Counters": "kvplan.runtime.ops.metrics",
    "DecodeWorker": "kvplan.runtime.decode.worker",
    "LeaseEvent": "kvplan.runtime.prefill.lease",
    "Expired": "kvplan.runtime.decode.outcome",
    "Hub": "kvplan.runtime.transport.inmemory",
    "Identity": "kvplan.runtime.control.identity",
    "InMemory": "kvplan.runtime.transport.inmemory",
    "Jit": "kvplan.runtime.plans.jit",
    "Keys": "kvplan.runtime.control.keys",
    "Limits": "kvplan.runtime.transfer.limits",
    "Memory": "kvplan.runtime.memory.arrays",
    "Nixl": "kvplan.runtime.transport.nixl",
    "Peer": "kvplan.runtime.decode.worker",
    "Plain": "kvplan.runtime.control.keys",
    "Plan": "kvplan.plan.types",
    "Pool": "kvplan.runtime.memory.register",
    "PrefillWorker": "kvplan.runtime.prefill.worker",
    "Released": "kvplan.runtime.prefill.lease",
    "Request": "kvplan.plan.request",
    "Ring": "kvplan.plan.block_tables",
    "Sample": "kvplan.runtime.checksum.checksum",
    "Slot": "kvplan.plan.block_tables",
    "Transfer": "kvplan.runtime.decode.transfer",
    "choose": "kvplan.plan.loader",
    "load_plan": "kvplan.plan.loader",
    "scales": "kvplan.runtime.control.identity",
    "views": "kvplan.runtime.memory.register",
}

__all__ = [
    "Abandoned",
    "Arrived",
    "Blocks",
    "Broken",
    "Catalog",
    "Counters",
    "DecodeWorker",
    "Expired",
    "Hub",
    "Identity",
    "InMemory",
    "Jit",
    "Keys",
    "LeaseEvent",
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
    return getattr(importlib.import_module(_HOME[name]), name)
