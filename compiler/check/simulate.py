"""Simulate: audit a plan's own copies strictly. Nothing unneeded is written, and readers are spread evenly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor, BoundWorker
from kvplan.compiler.check.audit.audit import Survey, Watched, judged, unchecked_survey
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.oracle import Ints, held
from kvplan.compiler.check.request import Copy
from kvplan.plan.request import Request
from kvplan.plan.types import Plan, Read

FINDINGS = 5
Holding = tuple[object, ...]


def simulate(
    plan: Plan, prefill: BoundSide, decode: BoundSide, copies: Iterable[Copy], request: Request, watched: Watched = iter
) -> Verdict:
    """Execute `copies` for `request` and compare every byte that the request needs on every decode worker.

    A needed byte must be written exactly once, from its own coordinate. Nothing else may be written except padding
    inside a page from padding, and no copy may begin or end there. Readers must be spread evenly over equal holders.
    """
    return simulated(plan, unchecked_survey(prefill, decode, request), copies, watched)


def simulated(plan: Plan, survey: Survey, copies: Iterable[Copy], watched: Watched = iter) -> Verdict:
    """Simulate like `simulate`, for a request that was surveyed."""
    verdict = judged(survey, tuple(copies), FINDINGS, strict=True, watched=watched)
    return replace(verdict, crowded=tuple(uneven(plan, *survey.sides)))


def uneven(plan: Plan, prefill: BoundSide, decode: BoundSide) -> list[str]:
    """Return a sentence for each tensor and set of equal holders whose readers are spread unevenly (by 2 or more)."""
    found = []
    for cache in prefill.caches:
        for tensor in cache.tensors:
            for holders in _equal(prefill, cache, tensor):
                loads = {w: sum(_reads(reads, w, cache, tensor) for reads in plan.reads) for w in holders}
                if max(loads.values()) - min(loads.values()) > 1:
                    found.append(f"{cache.name}.{tensor.name}: readers of workers that hold the same: {loads}")
    return found


def _equal(side: BoundSide, cache: BoundCache, tensor: BoundTensor) -> list[list[int]]:
    """Group a side's workers by what they hold of a tensor, without workers that hold nothing."""
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
    return any(tensor.name in nest.tensors for read in mine for nest in (*read.table.per_page, *read.table.per_token))
