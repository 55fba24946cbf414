"""The common part of the rig's prefill and decode workers: they receive commands as words and answer in words."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.cluster import content
from tests.cluster.setting import Setting
from tests.cluster.watched import Watched
from tests.runtime.helpers.plans import plan
from tests.runtime.helpers.worlds import memory

from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import KvplanError
from kvplan.plan.request import Slot
from kvplan.plan.types import Blocks
from kvplan.runtime import views
from kvplan.runtime.clock import now

Word = dict[str, Any]


class Actor:
    """One worker with its memory. A word has a table as first position, ids, slot, and the tokens before the slot."""

    worker: Any

    def __init__(self, setting: Setting, say: Callable[[Word], None], transport: Watched) -> None:
        self.setting, self.shape, self.model = setting, setting.shape, setting.model
        self.plan, self.transport = plan(setting.prefill, setting.decode, setting.model), transport
        self.side = self.plan.prefill if setting.role == "prefill" else self.plan.decode
        self._say, self._speaking, self.jumped = say, threading.Lock(), 0.0
        self.arrays: content.Arrays = {}

    def clock(self) -> float:
        """The time that the worker sees."""
        return now() + self.jumped

    def pool(self, logical: int) -> Any:
        """New memory, all paint."""
        self.arrays = memory(self.shape, self.model, self.setting.number, logical)
        content.paint(self.arrays)
        return views(self.side, self.setting.number, self.arrays)

    def say(self, **word: Any) -> None:
        with self._speaking:
            self._say(word)

    def told(self, word: Word) -> None:
        """Run the command and answer. Any error that is not a KvplanError is a crash."""
        arguments = dict(word)
        number, op = arguments.pop("re"), arguments.pop("op")
        try:
            found = getattr(self, f"do_{op}")(**arguments)
        except KvplanError as error:
            self.say(re=number, ok=False, **failure(error))
        except Exception:
            self.say(re=number, ok=False, code="crash", text=traceback.format_exc())
        else:
            self.say(re=number, ok=True, **(found or {}))

    def poll(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.worker.close()

    def tables(self, wire: Word) -> Tables:
        found: dict[str, Blocks | Slot] = {"kv": Blocks(wire["first"], np.array(wire["ids"], np.int64))}
        if self.model.state and wire.get("slot") is not None:
            found["state"] = Slot(wire["slot"], wire["at"])
        return found

    def do_jump(self, by: float) -> None:
        """The clock goes on by so many seconds at once, or back."""
        self.jumped += by

    def do_odds(self, **odds: float) -> None:
        """Chances of faults of the transport from now on."""
        self.transport.odds = odds

    def do_close(self) -> None:
        self.close()

    def do_stats(self) -> Word:
        """Figures that must not grow."""
        live = {kind: count for kind, count in self.transport.live.items() if count}
        return {"fds": len(os.listdir("/proc/self/fd")), "rss": _resident(), "live": live, **self.held()}

    def held(self) -> Word:
        return {}


def failure(error: KvplanError) -> Word:
    return {"code": error.code, "text": f"{type(error).__name__}: {error}"}


def _resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
