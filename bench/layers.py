"""A prompt whose layers are offered as they are computed, like by vLLM's connector: the time after the last layer.

With memory on a GPU, the GPU computes matrix products meanwhile, as many as a model needs for such a prompt. A CPU
would take minutes for these, so a clock replaces it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kvplan.bench.report import Row, within
from kvplan.bench.sample import summary
from kvplan.bench.stage import write_plan
from kvplan.calibrate.memories import memory_of
from kvplan.calibrate.peers import arrays, room

if TYPE_CHECKING:
    from kvplan.demo.processes import WorkerHandle, WorkerPipe
    from kvplan.plan.types import Plan, Side
    from kvplan.runtime import Blocks, DecodeWorker, Identity, Keys
    from kvplan.runtime.prefill.events import ComputeEvent

AREA = "layer by layer"
MODEL, PROMPT, DEADLINE = "llama-3.1-8b", 8192, 60.0
SAME, TURNED = ("tp=1,order=nhd", "tp=1,order=nhd", "direct"), ("tp=1,order=nhd", "tp=1,order=hnd", "unpack")
# Two operations for each of 8.03e9 parameters and each token; a product of two matrices of 8,192 rows has 2 * 8192**3.
ROWS, OPERATIONS = 8192, 2 * 8.03e9
# Seconds for the prompt at half of an H100's 989 TFLOP/s, when a clock replaces the computation.
COMPUTED = 0.27


def measure(pairs: int) -> list[Row]:
    """Measure in the host's memory, with equal pages: a stage's copies would take the cores that the wire needs."""
    return rows("DRAM", pairs, {"equal pages": SAME})


def rows(mem_type: str, pairs: int, cases: dict[str, tuple[str, str, str]]) -> list[Row]:
    """Compare the seconds from the last layer's end to done with one offer of everything at that time, per pair."""
    found = []
    for name, sides in cases.items():
        with _met(mem_type, *sides) as prompt:
            times = [prompt.both(turn) for turn in range(pairs + 1)][1:]
        found.append(within(AREA, f"{PROMPT:,} tokens, {name}, after the last layer, against all then", summary(times)))
    return found


class Compute(Protocol):
    """The computation of a prompt."""

    def begin(self, shares: Sequence[float]) -> list[ComputeEvent]:
        """Begin, and return the events of these shares of the prompt, which rise to 1."""

    def wait(self, event: Any) -> None:
        """Wait until an event has completed."""


@dataclass(frozen=True, slots=True)
class ClockEvent:
    """An event that completes at a time of the monotonic clock."""

    at: float

    def query(self) -> bool:
        return time.monotonic() >= self.at


class ClockCompute:
    """A computation that takes COMPUTED seconds and no core."""

    def begin(self, shares: Sequence[float]) -> list[ComputeEvent]:
        start = time.monotonic()
        return [ClockEvent(start + COMPUTED * share) for share in shares]

    def wait(self, event: Any) -> None:
        time.sleep(max(0.0, event.at - time.monotonic()))


class DeviceCompute:
    """Matrix products on the first GPU."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._matrix = torch.randn(ROWS, ROWS, dtype=torch.bfloat16, device="cuda")
        self._product = torch.mm(self._matrix, self._matrix)

    def begin(self, shares: Sequence[float]) -> list[ComputeEvent]:
        behind = [round(share * OPERATIONS * PROMPT / (2 * ROWS**3)) for share in shares]
        return [self._computed(end - start) for start, end in pairwise([0, *behind])]

    def _computed(self, products: int) -> ComputeEvent:
        for _ in range(products):
            self._torch.mm(self._matrix, self._matrix, out=self._product)
        event: Any = self._torch.cuda.Event()
        event.record()
        recorded: ComputeEvent = event
        return recorded

    def wait(self, event: Any) -> None:
        event.synchronize()


@dataclass(frozen=True, slots=True)
class StreamedPrompt:
    """A prompt that the other process computes on request, and a worker that loads it into this one."""

    worker: DecodeWorker
    member: WorkerHandle
    plan: Plan

    def both(self, turn: int) -> tuple[float, float]:
        """Return the seconds after the last layer: offered layer by layer, and all at once."""
        return self._seconds_left(f"layers-{turn}", False), self._seconds_left(f"whole-{turn}", True)

    def _seconds_left(self, name: str, whole: bool) -> float:
        from kvplan.runtime import Request

        wanted = Request(name, (0, PROMPT), {}, _tables(self.plan.decode))
        transfer = self.worker.open(wanted, DEADLINE)
        self.member.tell((name, whole))
        transfer.wait()
        ended = time.monotonic()
        computed: float = self.member.hear(ended + DEADLINE)
        return ended - computed


@contextmanager
def _met(mem_type: str, prefill: str, decode: str, strategy: str) -> Iterator[StreamedPrompt]:
    """Start the other process, and connect a decode worker here. Raises NixlMissingError, BadInput (S031)."""
    from kvplan.demo.processes import Processes
    from kvplan.demo.run import engines
    from kvplan.runtime import DecodeWorker, Nixl, views
    from kvplan.runtime.transport.nixl import api

    api()
    with TemporaryDirectory() as folder, Processes() as crew:
        path, plan = write_plan(folder, MODEL, prefill, decode, strategy)
        who, blocks = engines("prefill", "decode"), _blocks(plan.decode)
        memory = memory_of(mem_type).allocate(room(plan.decode, blocks))
        member = crew.start("prefill", serve, path, mem_type, *who["prefill"])
        pool, (identity, keys) = views(plan.decode, 0, arrays(plan.decode, blocks, memory)), who["decode"]
        worker = DecodeWorker(plan, 0, pool, Nixl("decode"), identity=identity, keys=keys)
        try:
            worker.connect(member.hear(time.monotonic() + DEADLINE), DEADLINE)
            yield StreamedPrompt(worker, member, plan)
        finally:
            worker.close()


def serve(line: WorkerPipe, path: str, mem_type: str, identity: Identity, keys: Keys) -> None:
    """Compute and offer the prompts that the parent names, and report when each was computed, until the parent ends."""
    from kvplan.plan.layers import batches, stored
    from kvplan.runtime import Nixl, PrefillWorker, load_plan, views

    plan, kind = load_plan(path), memory_of(mem_type)
    side = plan.prefill
    memory = kind.noise(room(side, _blocks(side)))
    pool = views(side, 0, arrays(side, _blocks(side), memory))
    compute: Compute = DeviceCompute() if mem_type == "VRAM" else ClockCompute()
    every = tuple(sorted(stored(plan, 0)))
    parts, tables = batches(every), _tables(side)
    shares = [end / len(every) for end in accumulate(map(len, parts))]
    worker = PrefillWorker(plan, 0, pool, Nixl(identity.name), identity=identity, keys=keys)
    worker.announce([worker.address])
    line.say(worker.address)
    try:
        while True:
            name, whole = line.listen(DEADLINE)
            events = compute.begin(shares)
            worker.open(name, (0, PROMPT))
            for layers, event in zip([every] if whole else parts, events[-1:] if whole else events, strict=True):
                last = event is events[-1]
                worker.offer(name, (0, PROMPT), tables, layers=layers, after=event, last=last)
            compute.wait(events[-1])
            line.say(time.monotonic())
    finally:
        worker.close()


def _blocks(side: Side) -> int:
    """Return the blocks of a whole prompt."""
    return -(-PROMPT // side.groups[0].tokens)


def _tables(side: Side) -> dict[str, Blocks]:
    from kvplan.runtime import Blocks

    return {group.name: Blocks(0, np.arange(_blocks(side), dtype=np.int64)) for group in side.groups}
