"""Prefill workers in a separate process, and a decode worker here that reads from them, over NIXL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.bench.raw import Raw
from kvplan.bench.stage import pool, write_plan
from kvplan.calibrate.peers import room

if TYPE_CHECKING:
    from kvplan.demo.processes import WorkerPipe
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker, Identity, Keys, Limits, Request, Transfer

SECONDS, LEASE = 60.0, 3600.0
PAUSE = 0.0005


@dataclass(frozen=True)
class PeerPair:
    """Readers of the other process: kvplan's decode worker, and NIXL by hand into the same memory.

    Requests are of `blocks` blocks of decode; `names` are those that prefill holds, each to be asked for once.
    """

    plan: Plan
    blocks: int
    names: Iterator[str]
    decode: DecodeWorker
    raw: Raw
    card: tuple[bytes, int]
    memory: npt.NDArray[np.uint8]

    def move(self) -> Transfer:
        """Move the next request, of all blocks, from submit to done. Raises TransferError."""
        return self.decode.submit(next(self._requests), SECONDS).wait()

    @cached_property
    def _requests(self) -> Iterator[Request]:
        """The remaining requests, made before anything is timed, because an engine has its tables when it submits."""
        return iter([request(self.plan, self.blocks, name) for name in self.names])

    @cached_property
    def by_hand(self) -> Raw:
        """NIXL by hand, ready to read the other side's memory, which is as large as ours."""
        return self.in_spans()

    def in_spans(self, span: int = 0) -> Raw:
        """Return NIXL by hand, which reads in spans of `span` bytes, 0 for all of it as one."""
        self.raw.meet(self.card, span)
        return self.raw

    def first(self, size: int) -> Callable[[], None]:
        """Return a function that reads the first `size` bytes by hand, as one descriptor."""
        raw = self.in_spans(size)
        return lambda: raw.read(raw.spans[:1])


def serve(
    line: WorkerPipe, path: str, blocks: int, requests: Iterable[str], pause: float, identity: Identity, keys: Keys
) -> None:
    """Run the prefill workers of the plan at `path`, over noise that `requests` hold, until the parent ends.

    `blocks` are decode's. NIXL by hand is polled every `pause` seconds.
    """
    from kvplan.runtime import Nixl, PrefillWorker, load_plan
    from kvplan.runtime.transport.nixl import api

    plan = load_plan(path)
    side, blocks = plan.prefill, prefill_blocks(plan, blocks)
    sizes = [room(side, blocks, number) for number in range(len(side.workers))]
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
    """Return the prefill blocks with as many tokens as `blocks` of decode, by each side's first group of tokens."""
    prefill, decode = (
        next(group.tokens for group in side.groups if group.store == "tokens") for side in (plan.prefill, plan.decode)
    )
    return blocks * decode // prefill


def request(plan: Plan, blocks: int, name: str, first: int = 0) -> Request:
    """Return a request of `blocks` blocks of decode from block `first` on, and as many tokens of prefill, in order."""
    from kvplan.runtime import Blocks, Request

    (group,) = plan.decode.groups
    there = prefill_blocks(plan, first), prefill_blocks(plan, first + blocks)
    prefill = {plan.prefill.groups[0].name: Blocks(0, np.arange(*there, dtype=np.int64))}
    decode = {group.name: Blocks(0, np.arange(first, first + blocks, dtype=np.int64))}
    return Request(name, (0, blocks * group.tokens), prefill, decode)


def blocks_of(size: int) -> Callable[[Plan], int]:
    """Return a function that gives how many blocks of decode worker 0 have `size` bytes, at least one."""
    return lambda plan: max(1, size // room(plan.decode, 1))


@contextmanager
def met(
    model: str,
    prefill: str,
    decode: str,
    blocks: Callable[[Plan], int],
    requests: int,
    *,
    strategy: str = "direct",
    limits: Limits | None = None,
    pause: float = PAUSE,
    mode: str = "pull",
) -> Iterator[PeerPair]:
    """Start a process that serves `requests` requests of a pair of sides, each of `blocks` blocks of its plan, and
    connect this one; NIXL counts what it posts. Raises NixlMissingError.
    """
    from kvplan.demo.processes import Processes
    from kvplan.demo.run import engines
    from kvplan.runtime import DecodeWorker, Nixl
    from kvplan.runtime.transport.nixl import api

    nixl, who = api(), engines("prefill", "decode")
    with TemporaryDirectory() as folder, Processes() as crew:
        path, plan = write_plan(folder, model, prefill, decode, strategy)
        count, names = blocks(plan), tuple(f"request-{number}" for number in range(requests))
        memory = np.zeros(room(plan.decode, count), np.uint8)
        member = crew.start("prefill", serve, path, count, names, pause, *who["prefill"])
        address, card = member.hear(time.monotonic() + SECONDS)
        mine, transport = pool(plan.decode, 0, count, memory.ctypes.data), Nixl("decode", telemetry=True)
        identity, keys = who["decode"]
        worker = DecodeWorker(plan, 0, mine, transport, identity=identity, keys=keys, limits=limits)
        try:
            worker.connect(address, SECONDS, mode=mode)
            yield PeerPair(plan, count, iter(names), worker, Raw(nixl, "raw-decode", memory), card, memory)
        finally:
            worker.close()
