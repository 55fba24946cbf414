"""Caches in a GPU's memory, moved to another process, direct and through a stage; and NIXL alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kvplan.bench import bare, layers
from kvplan.bench.peer import blocks_of, request
from kvplan.bench.report import Row, faster, skipped, within
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import nixl_missing, write_plan

if TYPE_CHECKING:
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker
    from kvplan.runtime.staging.buffers import Stage

AREA = "memory of a GPU"
MODEL, BYTES, SECONDS = "llama-3.1-8b", 64 << 20, 60.0
TOKENS, HEADS = "tp=1,order=nhd", "tp=1,order=hnd"
# The least gain of a stage over going straight, as on the host.
LEAST = 4.0
OTHER = {"pull": "push", "push": "pull"}


def measure(pairs: int) -> list[Row]:
    """Measure. First both GPUs sum the bytes, with requests held after an event: a wrong byte raises."""
    if why := nixl_missing() or _no_gpu():
        return [skipped(AREA, why)]
    cases = {"equal pages": layers.SAME, "tokens first to heads first, unpacked": layers.TURNED}
    return [*rows("VRAM", pairs, BYTES), *layers.rows("VRAM", pairs, cases)]


def rows(mem_type: str, pairs: int, size: int) -> list[Row]:
    """Return all rows for requests of `size` bytes in memory of the type VRAM or DRAM."""
    memcpy = _memcpy(mem_type, size)
    found = bare.rows(mem_type, pairs, size)
    with _mover(mem_type, pairs, size, TOKENS, TOKENS, "direct") as alike:
        found.append(within(AREA, f"{alike.mode}, equal sides, against memcpy", interleave(alike.move, memcpy, pairs)))
    with (
        _mover(mem_type, pairs, size, TOKENS, HEADS, "direct") as straight,
        _mover(mem_type, pairs, size, TOKENS, HEADS, "unpack") as unpacked,
        _mover(mem_type, pairs, size, TOKENS, HEADS, "pack") as packed,
    ):
        for name, staged in (("unpacked", unpacked), ("packed", packed)):
            title = f"{staged.mode}, tokens first to heads first, {name}"
            won = interleave(staged.move, straight.move, pairs)
            found.append(faster(AREA, f"{title}, against straight", won, LEAST))
            found.append(within(AREA, f"{title}, against memcpy", interleave(staged.move, memcpy, pairs)))
        with _mover(mem_type, pairs, size, TOKENS, HEADS, "unpack", OTHER[unpacked.mode]) as other:
            turned = interleave(other.move, unpacked.move, pairs)
        found.append(within(AREA, f"{other.mode}, unpacked, against {unpacked.mode}", turned))
        copied = interleave(unpacked.copies(), memcpy, pairs)
    return [*found, within(AREA, "copies from a stage alone, against memcpy", copied)]


@dataclass(frozen=True, slots=True)
class RepeatedRequest:
    """A request of all blocks of a pool that is repeated, each time with another name.

    `mode` says which side moves it, as the worker chose: a GPU's memory is pulled over RDMA, and otherwise pushed.
    """

    worker: DecodeWorker
    mode: str
    plan: Plan
    blocks: int
    names: Iterator[str]

    def move(self) -> None:
        """Move it. Raises TransferError."""
        self.worker.submit(request(self.plan, self.blocks, next(self.names)), SECONDS).wait()

    def check(self) -> None:
        """Move it, and let both sides sum every token. Raises ChecksumError if these differ."""
        from kvplan.runtime import Sample

        wanted = request(self.plan, self.blocks, next(self.names))
        self.worker.submit(wanted, SECONDS, checksum=Sample(every=1)).wait()

    def copies(self) -> Callable[[], None]:
        """Return a function that makes a move's copies between the stage's buffers and the pool, without the wire."""
        (engine,) = self.worker.half.engines.live.values()
        (connection,) = engine.connections.values()
        wanted = request(self.plan, self.blocks, "copies")
        pair = engine.known.pair
        demand = pair.demands.demand(pair.checked(wanted, fed=False))
        link, stage = connection.links.of(None), self.worker.endpoint.stage
        return lambda: _copy(link, stage, demand.of(0))


def _copy(link: Any, stage: Stage, runs: Any) -> None:
    from kvplan.runtime.staging.staged import StagedMove
    from kvplan.runtime.transfer.slices import through_stage

    for move in through_stage(link, runs)[1]:
        assert isinstance(move, StagedMove)
        stage.begin()
        assert move.ready(), "every buffer is free"
        stage.of(move.piece.memory).copy(partial(move.piece.copy, address=move.address), True).result()
        move.release()


@contextmanager
def _mover(
    mem_type: str, pairs: int, size: int, prefill: str, decode: str, strategy: str, mode: str = "auto"
) -> Iterator[RepeatedRequest]:
    """Start two processes; yield a request whose bytes were checked."""
    from kvplan.calibrate.peers import ServedPair, served

    with TemporaryDirectory() as folder:
        path, plan = write_plan(folder, MODEL, prefill, decode, strategy)
        blocks = blocks_of(size)(plan)
        names = tuple(f"request-{number}" for number in range(1 + 3 * (WARMUP + pairs)))
        with served([ServedPair(path, blocks, names)], mem_type) as readers:
            worker, peer = readers.reader(0, mode=mode)
            repeated = RepeatedRequest(worker, peer.mode, plan, blocks, iter(names))
            repeated.check()
            yield repeated


def _memcpy(mem_type: str, size: int) -> Callable[[], None]:
    from kvplan.calibrate.memories import memory_of

    memory = memory_of(mem_type)
    target, source = memory.allocate(size), memory.noise(size)
    return lambda: memory.copy(target, source)


def _no_gpu() -> str:
    """Say why no memory of a GPU can be measured, empty if it can."""
    from kvplan.calibrate.memories import DeviceMemory
    from kvplan.compiler.errors import BadInput

    try:
        DeviceMemory()
    except BadInput as error:
        return error.message
    return ""
