"""A prefill process whose bytes are written after it has held them."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from kvplan.calibrate.memories import CalibratedMemory, memory_of
from kvplan.calibrate.peers import arrays, room
from kvplan.demo.processes import WorkerPipe
from kvplan.runtime import Identity, Keys, Nixl, PrefillWorker, load_plan, views
from kvplan.runtime.prefill.events import ComputeEvent

LATE = 0.5


def hold_late(line: WorkerPipe, path: str, blocks: int, mem_type: str, identity: Identity, keys: Keys) -> None:
    """Hold a request whose bytes are written some time later, and whose event says so."""
    plan, kind = load_plan(path), memory_of(mem_type)
    memory = kind.allocate(room(plan.prefill, blocks))
    pool = views(plan.prefill, 0, arrays(plan.prefill, blocks, memory))
    worker = PrefillWorker(plan, 0, pool, Nixl("prefill"), identity=identity, keys=keys)
    event = written_late(kind, memory)
    worker.hold("late", after=event)
    worker.announce([worker.address])
    assert not event.query()
    line.say(worker.address)
    while not line.waiting():
        time.sleep(0.01)
    worker.close()


class ThreadEvent:
    """An event of the host, which tells whether a thread has written noise into memory, LATE seconds later."""

    def __init__(self, memory: Any, noise: Any) -> None:
        self._written = threading.Event()
        threading.Thread(target=self._write, args=(memory, noise), daemon=True).start()

    def query(self) -> bool:
        return self._written.is_set()

    def _write(self, memory: Any, noise: Any) -> None:
        time.sleep(LATE)
        np.copyto(memory, noise)
        self._written.set()


def written_late(kind: CalibratedMemory, memory: Any) -> ComputeEvent:
    """Have memory written LATE seconds later; an event that tells when."""
    noise = kind.noise(len(memory))
    if kind.mem_type == "VRAM":
        import torch

        # A cycle is half a nanosecond, about.
        torch.cuda._sleep(int(2e9 * LATE))
        memory.copy_(noise)
        event = torch.cuda.Event()
        event.record()
        return event
    return ThreadEvent(memory, noise)
