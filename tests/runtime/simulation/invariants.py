"""The invariants of every schedule, and those of its end: nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from tests.runtime.helpers.worlds import Truth, expect
from tests.runtime.simulation.channels import Late

from kvplan.runtime import DecodeWorker, PrefillWorker, Request
from kvplan.runtime.inspection import Inspection
from kvplan.runtime.staging.buffers import BUFFERS

if TYPE_CHECKING:
    from tests.runtime.simulation.engines import Engine, Engines, Work


def right(made: Engines, engine: Engine, number: int, request: Request, work: Work) -> None:
    """Every byte of a request that is done is there; of a later hold of its name only if it names no blocks."""
    shape, given, tokens = made.shapes[1], request.decode, request.tokens
    want = expect(shape, made.model, number, work.content, given, tokens)
    ones = Truth(np.ones_like(work.content.k), np.ones_like(work.content.s))
    there = expect(shape, made.model, number, ones, given, tokens)
    wrong = [
        plane
        for plane, array in engine.arrays[number].items()
        if not np.array_equal(array[there[plane] != 0], want[plane][there[plane] != 0])
    ]
    if wrong and work.later is not None and not request.prefill:
        right(made, engine, number, request, work.later)
        return
    assert not wrong, f"wrong bytes in {wrong} of {request.id}"


def written(made: Engines, late: Late) -> Iterator[tuple[DecodeWorker, int, int]]:
    """The decode blocks (worker, arena, number) that a transfer writes."""
    spots = np.unique(late.target[:, 0])
    for engine in made.engines:
        for worker, arrays in zip(engine.workers, engine.arrays, strict=True):
            for plane, array in arrays.items():
                at = spots[(spots >= array.ctypes.data) & (spots < array.ctypes.data + array.nbytes)]
                kv = plane.startswith("kv")
                size = array.shape[1] * (made.shapes[1].ratio if kv else 1)
                for block in np.unique((at - array.ctypes.data) // size).tolist():
                    yield worker, 0 if kv else 1, block


def look(made: Engines) -> None:
    """No decode block is free while a transfer may write it."""
    moving = [late for late in made.net.transfers if late.moving]
    taken = {worker: taken_blocks(worker) for engine in made.engines for worker in engine.workers if moving}
    for late in moving:
        for worker, arena, block in written(made, late):
            assert (arena, block) in taken[worker], f"block {block} is free and being written"


def taken_blocks(worker: DecodeWorker) -> frozenset[tuple[int, int]]:
    """The blocks (arena, number) of a decode worker that are not free."""
    seen = worker.inspect()
    return seen.written | seen.quarantined


def lent(made: Engines) -> None:
    """No buffer of a stage is free while a transfer may write it, or reads it for its own worker.

    A reader that was dropped as silent may still read its packed pieces, but it gets no confirmation.
    """
    workers: list[DecodeWorker | PrefillWorker] = list(made.prefill)
    workers += [worker for engine in made.engines for worker in engine.workers]
    moving = [late for late in made.net.transfers if late.moving]
    seen = [worker.inspect() for worker in workers if moving]
    for late, one in product(moving, seen):
        own = late.source[:, 0] if late.agent.name == one.transport else late.source[:0, 0]
        spots = np.concatenate((late.target[:, 0], own))
        for address in one.stage.free:
            inside = (spots >= address) & (spots < address + one.stage.buffer_bytes)
            assert not inside.any(), f"a free buffer at {address:#x} is read or written"


def rested(worker: DecodeWorker) -> None:
    """Nothing is left at a decode worker except its known peers."""
    seen = worker.inspect()
    assert (worker.running(), worker.quarantined()) == (0, {})
    assert (seen.requests, seen.failed, seen.ended) == ((), (), ())
    assert (seen.written, seen.quarantined) == (frozenset(), frozenset())
    assert {engine.status for engine in seen.engines} <= {"connected"}
    calm(seen)
    assert seen.met == seen.peers == {peer for engine in seen.engines for peer in engine.peers}


def empty(worker: PrefillWorker) -> None:
    """Nothing is left at a prefill worker except its known peers."""
    seen = worker.inspect()
    assert (seen.holds, seen.uncollected) == ((), ())
    assert (seen.sources, seen.writes, seen.packs, seen.unannounced) == ((), (), 0, ())
    assert not [client for client in seen.readers if client.claims]
    calm(seen)
    assert seen.met == seen.peers == {client.peer for client in seen.readers if client.peer}


def calm(seen: Inspection) -> None:
    """Nothing moves or is summed, every buffer of a worker's stage is there again, and nobody waits for one."""
    assert (seen.bytes_in_flight, seen.slices, seen.checksums) == (0, (), 0)
    stage = seen.stage
    assert (stage.waiting, stage.lent, stage.kept, stage.copies) == ((), (), (), 0)
    assert len(stage.free) == (BUFFERS if stage.open else 0)
