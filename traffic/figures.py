"""Figures of simulated candidates: the times of requests and their parts, the busiest parts, and the best pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import nan

import numpy as np

from kvplan.traffic.runs import RequestEnd, RequestTimes, SimulatedRun

# Times whose relative difference is smaller count as equal.
NEAR = 0.01


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds that half of all requests, nine of ten and 99 of 100 do not exceed."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class MeanParts:
    """Mean milliseconds of the parts of the time to the first token: waiting for prefill, computing, waiting for
    decode, moving, and the step that gives the token.
    """

    queue: float
    compute: float
    room: float
    transfer: float
    step: float


@dataclass(frozen=True, slots=True)
class BusyShares:
    """The share of the time from the first arrival to the last answer in which the busiest of each kind is busy:
    a prefill engine's computing, a posting thread, the cards of an engine, the cores that all share.
    """

    compute: float
    posting: float
    rails: float
    cores: float


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """All figures of one candidate. `prefill_blocks` and `decode_blocks` are the largest share in use at once."""

    name: str
    requests: int
    done: int
    refused: int
    expired: int
    first_token: Percentiles
    transfer: Percentiles
    per_second: float
    parts: MeanParts
    busy: BusyShares
    prefill_blocks: float
    decode_blocks: float

    @property
    def lost(self) -> int:
        return self.refused + self.expired


def figures_of(name: str, run: SimulatedRun) -> CandidateFigures:
    """Return the figures of a run."""
    ends = Counter(request.end for request in run.requests)
    done = [request for request in run.requests if request.end is RequestEnd.DONE]
    span = max((each.answered for each in done), default=nan) - min((r.arrived for r in run.requests), default=nan)
    return CandidateFigures(
        name=name,
        requests=len(run.requests),
        done=ends[RequestEnd.DONE],
        refused=ends[RequestEnd.REFUSED],
        expired=ends[RequestEnd.EXPIRED],
        first_token=_percentiles([each.first - each.arrived for each in done]),
        transfer=_percentiles([each.moved - each.submitted for each in done]),
        per_second=len(done) / span * 1e6 if span else nan,
        parts=_parts(done),
        busy=_busy(run, span),
        prefill_blocks=max((each.most / each.blocks for each in run.prefill if each.blocks), default=0.0),
        decode_blocks=max((each.most / each.blocks for each in run.decode if each.blocks), default=0.0),
    )


def _percentiles(times: Sequence[float]) -> Percentiles:
    if not times:
        return Percentiles(nan, nan, nan)
    return Percentiles(*(float(each) / 1000 for each in np.percentile(times, (50, 90, 99))))


def _parts(done: Sequence[RequestTimes]) -> MeanParts:
    if not done:
        return MeanParts(*[nan] * 5)
    moments = np.array([(r.arrived, r.began, r.computed, r.submitted, r.moved, r.first) for r in done])
    return MeanParts(*(np.diff(moments, axis=1).mean(axis=0) / 1000).tolist())


def _busy(run: SimulatedRun, span: float) -> BusyShares:
    engines = (*run.prefill, *run.decode)
    rails = max((each.bytes / each.rails for each in engines if each.rails), default=0.0)
    computed, posting = max(each.computed for each in engines), max(each.posting for each in engines)
    cores = run.working / run.cores if run.cores else 0.0
    return BusyShares(*(each / span if span else nan for each in (computed, posting, rails, cores)))


def best_of(candidates: Sequence[CandidateFigures]) -> CandidateFigures | None:
    """Return the candidate that loses the fewest requests, then has the least time to the first token at p90, then p50.

    Times within a hundredth are equal, and the first candidate wins. None if no candidate answers anything.
    """
    some = [each for each in candidates if each.done]
    if not some:
        return None
    fewest = min(each.lost for each in some)
    left = [each for each in some if each.lost == fewest]
    for percentile in ("p90", "p50"):
        times = [getattr(each.first_token, percentile) for each in left]
        left = [each for each, time in zip(left, times, strict=True) if time <= (1 + NEAR) * min(times)]
    return left[0]


def why(best: CandidateFigures, candidates: Sequence[CandidateFigures]) -> str:
    """Say how the best differs from the next best."""
    others = [each for each in candidates if each is not best]
    following = best_of(others)
    if following is None:
        return "no other one answers anything" if others else "there is no other one"
    if following.lost > best.lost:
        return f"it loses {best.lost:,} of {best.requests:,} requests, {following.name} {following.lost:,}"
    saved = following.first_token.p90 - best.first_token.p90
    if saved <= NEAR * best.first_token.p90:
        return f"{following.name} is as fast within a hundredth"
    names = (part.name for part in fields(MeanParts))
    parts = {name: getattr(following.parts, name) - getattr(best.parts, name) for name in names}
    name = max(parts, key=lambda part: parts[part])
    share = 100 * saved / following.first_token.p90
    return (
        f"p90 to the first token is {share:.0f} % less than with {following.name}: "
        f"{PARTS[name]} takes {parts[name]:,.1f} ms less in the mean"
    )


PARTS = {
    "queue": "waiting for prefill",
    "compute": "computing",
    "room": "waiting for blocks of decode",
    "transfer": "moving",
    "step": "a step of decode",
}
BOUNDS = {
    "compute": "prefill computes",
    "posting": "a worker's thread posts",
    "rails": "network cards move",
    "cores": "shared cores work",
}


def bound(figures: CandidateFigures) -> str:
    """Name the busiest part: `prefill computes 83 % of the time`."""
    shares = {field.name: getattr(figures.busy, field.name) for field in fields(BusyShares)}
    name = max(shares, key=lambda each: shares[each])
    return f"{BOUNDS[name]} {100 * shares[name]:.0f} % of the time"
