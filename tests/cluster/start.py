"""Make a worker of the rig, in this process."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.cluster.actor import Actor, Word
from tests.cluster.setting import Setting
from tests.cluster.watched import Watched

from kvplan.runtime import Nixl
from kvplan.runtime.transport.inmemory import Hub, InMemory


def actor(setting: Setting, say: Callable[[Word], None], hub: Hub | None = None) -> Actor:
    """A worker as `setting` has it, with NIXL, or within this process at `hub`."""
    name = f"{setting.name}-{setting.number}"
    inner: Any = Nixl(name) if setting.nixl else InMemory(hub or Hub(), name)
    transport = Watched(inner, Random(f"{setting.seed} {name}"), setting.odds)
    if setting.role == "prefill":
        from tests.cluster.prefill import Prefill

        return Prefill(setting, say, transport)
    from tests.cluster.decode import Decode

    return Decode(setting, say, transport)
