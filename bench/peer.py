"""A prefill worker in a process of its own, and a puller here that reads from it, over NIXL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench.raw import Raw
from bench.stage import pool, room

if TYPE_CHECKING:
    from kvplan.cli.crew import Line
    from kvplan.runtime import Puller

SECONDS = 60.0
PAUSE = 0.0005


@dataclass(frozen=True)
class Pair:
    """What reads from the other process: kvplan's puller, and NIXL by hand into the same memory."""

    puller: Puller
    raw: Raw
    card: tuple[bytes, int]
    memory: npt.NDArray[np.uint8]

    @cached_property
    def by_hand(self) -> Raw:
        """NIXL by hand, ready to read the other side's memory, which is as large as ours."""
        self.raw.meet(self.card)
        return self.raw


def serve(line: Line, path: str, blocks: int) -> None:
    """Prefill worker 0 of the plan at `path`, over memory full of noise; until the parent is gone."""
    from kvplan.runtime import Nixl, PrefillWorker, load_plan
    from kvplan.runtime.nixl import api

    plan = load_plan(path)
    memory = np.random.default_rng(1).integers(0, 256, room(plan.prefill, 0, blocks), np.uint8)
    worker = PrefillWorker(plan, 0, pool(plan.prefill, 0, blocks, memory.ctypes.data), Nixl("prefill"))
    raw = Raw(api(), "raw-prefill", memory)
    worker.announce([worker.address])
    line.say((worker.address, raw.card()))
    while not line.waiting():
        worker.poll()
        raw.poll()
        time.sleep(PAUSE)


@contextmanager
def met(path: str, blocks: int) -> Iterator[Pair]:
    """A process that serves `blocks` blocks, and this one connected to it; NIXL counts the requests."""
    from kvplan.cli.crew import Crew
    from kvplan.runtime import Nixl, Puller, load_plan
    from kvplan.runtime.nixl import api

    plan = load_plan(path)
    memory = np.zeros(room(plan.decode, 0, blocks), np.uint8)
    with Crew() as crew:
        member = crew.start("prefill", serve, path, blocks)
        address, card = member.hear(time.monotonic() + SECONDS)
        transport = Nixl("decode", telemetry=True)
        puller = Puller(plan, 0, pool(plan.decode, 0, blocks, memory.ctypes.data), transport)
        puller.connect(address, SECONDS)
        raw = Raw(api(), "raw-decode", memory)
        try:
            yield Pair(puller, raw, card, memory)
        finally:
            puller.close()
