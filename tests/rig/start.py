"""Make a worker of the rig, in this process."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kvplan.runtime import Nixl
from kvplan.runtime.inmemory import Hub, InMemory
from tests.rig.actor import Actor, Word
from tests.rig.setting import Setting
from tests.rig.watched import Watched


def actor(setting: Setting, say: Callable[[Word], None], hub: Hub | None = None) -> Actor:
    """A worker as `setting` has it, with NIXL, or within this process at `hub`."""
    name = f"{setting.name}-{setting.number}"
    inner: Any = Nixl(name) if setting.nixl else InMemory(hub or Hub(), name)
    transport = Watched(inner, Random(f"{setting.seed} {name}"), setting.odds)
    if setting.role == "prefill":
        from tests.rig.prefill import Prefill

        return Prefill(setting, say, transport)
    from tests.rig.decode import Decode

    return Decode(setting, say, transport)
