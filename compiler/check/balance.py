"""Whether readers are even over the workers that hold the same: counted, with nothing of the election's code."""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.check.oracle import Ints, held
from kvplan.plan.types import Plan, Read

Holding = tuple[object, ...]


def uneven(plan: Plan, prefill: BoundSide, decode: BoundSide) -> list[str]:
    """A sentence for every tensor and set of equal holders of which one is read by two or more readers than another."""
    found = []
    for cache in prefill.caches:
        for tensor in cache.tensors:
            for holders in _equal(prefill, cache, tensor):
                loads = {w: sum(_reads(reads, w, cache, tensor) for reads in plan.reads) for w in holders}
                if max(loads.values()) - min(loads.values()) > 1:
                    found.append(f"{cache.name}.{tensor.name}: readers of workers that hold the same: {loads}")
    return found


def _equal(side: BoundSide, cache: BoundCache, tensor: BoundTensor) -> list[list[int]]:
    """The workers of a side by what they hold of a tensor; those that hold nothing left out."""
    alike: dict[Holding, list[int]] = {}
    for worker in side.workers:
        numbers = held(side, worker, cache, tensor)
        if all(n.size for n in numbers.values()):
            alike.setdefault(_holding(cache, worker, numbers), []).append(worker.number)
    return list(alike.values())


def _holding(cache: BoundCache, worker: BoundWorker, numbers: dict[str, Ints]) -> Holding:
    layers = tuple(n for n in cache.layers if n in worker.layers)
    turn = 0 if cache.ring or cache.store != "tokens" else worker.token_shard
    return layers, turn, *(n.tobytes() for n in numbers.values())


def _reads(reads: tuple[Read, ...], worker: int, cache: BoundCache, tensor: BoundTensor) -> bool:
    mine = (read for read in reads if (read.worker, read.cache) == (worker, cache.name))
    return any(tensor.name in nest.tensors for read in mine for nest in (*read.table.page, *read.table.token))
