"""Prefill workers in a process of their own, and a decode worker here that reads from them, over NIXL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.bench.raw import Raw
from kvplan.bench.stage import pool, room

if TYPE_CHECKING:
    from kvplan.cli.demo.processes import WorkerPipe
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker, Identity, Keys, Limits

SECONDS, LEASE = 60.0, 3600.0
PAUSE = 0.0005


@dataclass(frozen=True)
class PeerPair:
    """What reads from the other process: kvplan's decode worker, and NIXL by hand into the same memory."""

    decode: DecodeWorker
    raw: Raw
    card: tuple[bytes, int]
    memory: npt.NDArray[np.uint8]

    @cached_property
    def by_hand(self) -> Raw:
        """NIXL by hand, ready to read the other side's memory, which is as large as ours."""
        return self.in_spans()

    def in_spans(self, span: int = 0) -> Raw:
        """NIXL by hand, which reads in spans of `span` bytes, 0 for all of it as one."""
        self.raw.meet(self.card, span)
        return self.raw

    def first(self, size: int) -> Callable[[], None]:
        """Reading the first `size` bytes by hand, as one request."""
        raw = self.in_spans(size)
        return lambda: raw.read(raw.spans[:1])


def serve(
    line: WorkerPipe, path: str, blocks: int, requests: Iterable[str], pause: float, identity: Identity, keys: Keys
) -> None:
    """The prefill workers of the plan at `path`, over noise that `requests` hold; until the parent is gone.

    `blocks` are decode's. NIXL by hand is polled every `pause` seconds.
    """
    from kvplan.runtime import Nixl, PrefillWorker, load_plan
    from kvplan.runtime.transport.nixl import api

    plan = load_plan(path)
    side, blocks = plan.prefill, prefill_blocks(plan, blocks)
    sizes = [room(side, number, blocks) for number in range(len(side.workers))]
    memory = np.random.default_rng(1).integers(0, 256, sum(sizes), np.uint8)
    starts = (memory.ctypes.data + sum(sizes[:number]) for number in range(len(sizes)))
    workers = [
        PrefillWorker(
            plan, number, pool(side, number, blocks, start), Nixl(f"prefill{number}"), identity=identity, keys=keys,
            lease=LEASE,
        )
        for number, start in enumerate(starts)
    ]  # fmt: skip
    raw = Raw(api(), "raw-prefill", memory)
    for worker in workers:
        for request in requests:
            worker.hold(request)
        worker.announce([one.address for one in workers])
    line.say((workers[0].address, raw.card()))
    while not line.waiting():
        raw.poll()
        time.sleep(pause)
    for worker in workers:
        worker.close()


def prefill_blocks(plan: Plan, blocks: int) -> int:
    """Prefill blocks with as many tokens as `blocks` of decode, by the first group of either side that has tokens."""
    prefill, decode = (
        next(group.tokens for group in side.groups if group.store == "tokens") for side in (plan.prefill, plan.decode)
    )
    return blocks * decode // prefill


@contextmanager
def met(
    path: str,
    blocks: int,
    requests: Iterable[str],
    limits: Limits | None = None,
    pause: float = PAUSE,
    mode: str = "pull",
) -> Iterator[PeerPair]:
    """A process that serves `requests` of `blocks` blocks, and this one connected to it; NIXL counts what it posts."""
    from kvplan.cli.demo.processes import Processes
    from kvplan.cli.demo.run import engines
    from kvplan.runtime import DecodeWorker, Nixl, load_plan
    from kvplan.runtime.transport.nixl import api

    plan = load_plan(path)
    memory = np.zeros(room(plan.decode, 0, blocks), np.uint8)
    who = engines()
    with Processes() as crew:
        member = crew.start("prefill", serve, path, blocks, tuple(requests), pause, *who["prefill"])
        address, card = member.hear(time.monotonic() + SECONDS)
        mine, transport = pool(plan.decode, 0, blocks, memory.ctypes.data), Nixl("decode", telemetry=True)
        identity, keys = who["decode"]
        decode = DecodeWorker(plan, 0, mine, transport, identity=identity, keys=keys, limits=limits)
        try:
            decode.connect(address, SECONDS, mode=mode)
            yield PeerPair(decode, Raw(api(), "raw-decode", memory), card, memory)
        finally:
            decode.close()
