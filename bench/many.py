"""Many small requests at once to one peer: how many a second, and how long a poll keeps its thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kvplan.bench.homogeneous import request
from kvplan.bench.peer import SECONDS, met
from kvplan.bench.report import Row, skipped
from kvplan.bench.stage import library, nixl_missing, write_plan

if TYPE_CHECKING:
    from kvplan.bench.raw import Raw
    from kvplan.plan.types import Plan
    from kvplan.runtime import DecodeWorker, Transfer

AREA = "many requests"
# A worker of one layer, whose blocks are of 64 KiB; as many requests a sample as prefill holds for all samples.
MODEL, SIDE, KIB = "qwen3-0.6b", "pp=28", 64
AT_ONCE, REQUESTS, SAMPLES = (1, 8, 64), 200, 6
# Slices, and how many of them a request has.
LARGE, SLICES = "llama-3.1-8b", ((8 << 20, 16), (64 << 20, 8))
PAUSE = 0.05


def measure(pairs: int) -> list[Row]:
    """Requests a second, from submit to done; the first sample of each is not counted."""
    if why := nixl_missing():
        return [skipped(AREA, why)]
    return [*rates(AT_ONCE), *(_longest_poll(pairs, *slices) for slices in SLICES)]


def rates(numbers: Sequence[int]) -> list[Row]:
    """A row for each number of requests at once."""
    with TemporaryDirectory() as folder:
        path, plan = write_plan(library(), folder, MODEL, SIDE, SIDE)
        names = [f"request-{number}" for number in range(len(numbers) * REQUESTS * SAMPLES)]
        with met(path, max(numbers), names, pause=PAUSE) as pair:
            left = iter(names)
            return [_rate(plan, pair.decode, at_once, left) for at_once in numbers]


def _rate(plan: Plan, decode: DecodeWorker, at_once: int, names: Iterator[str]) -> Row:
    rates = [REQUESTS / _seconds(plan, decode, at_once, names) for _ in range(SAMPLES)][1:]
    low, _, high = quantiles(rates, n=4, method="inclusive")
    details: dict[str, object] = {"rates": rates, "requests": REQUESTS}
    value, name = f"{median(rates):,.0f} a second", f"{KIB} KiB, {at_once} at once"
    return Row(AREA, name, value, spread=f"{low:,.0f}..{high:,.0f}", pairs=len(rates), details=details)


def _seconds(plan: Plan, decode: DecodeWorker, at_once: int, names: Iterator[str]) -> float:
    """How long a sample takes where the next request begins when one has ended."""
    free, running, begun, began = list(range(at_once)), dict["Transfer", int](), 0, time.perf_counter()
    while begun < REQUESTS or running:
        with decode.together():
            for block in [free.pop() for _ in range(min(len(free), REQUESTS - begun))]:
                running[decode.submit(request(plan, 1, next(names), block), SECONDS)] = block
                begun += 1
        decode.poll()
        ended = [transfer for transfer in running if transfer.ended]
        free += [running.pop(transfer.wait()) for transfer in ended]
        if not ended:
            decode.rest(1e-3)
    return time.perf_counter() - began


def _longest_poll(pairs: int, size: int, count: int) -> Row:
    """The longest poll of a request of `count` slices of `size` bytes, over the longest read of one of them by hand."""
    from kvplan.runtime import Limits

    with TemporaryDirectory() as folder:
        path, plan = write_plan(library(), folder, LARGE, "tp=1", "tp=1")
        blocks = count * size // sum(planes.page * len(planes.loops[0][1]) for planes in plan.decode.workers[0].planes)
        names = [f"request-{number}" for number in range(1 + pairs)]
        with met(path, blocks, names, Limits(slice_bytes=size)) as pair:
            slices = pair.in_spans(size)
            times = [(_polled(pair.decode, plan, blocks, name), _longest_read(slices)) for name in names][1:]
    ratios = [poll / read for poll, read in times]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    name, polls = f"longest poll, slices of {size >> 20} MiB", [poll for poll, _ in times]
    return Row(
        AREA, name, f"{middle:.2f}x one slice", spread=f"{low:.2f}..{high:.2f}", pairs=pairs, details={"polls": polls}
    )


def _polled(decode: DecodeWorker, plan: Plan, blocks: int, name: str) -> float:
    """Seconds of the longest poll of one request."""
    transfer, polls = decode.submit(request(plan, blocks, name), SECONDS), list[float]()
    while not transfer.ended:
        polls.append(_taken(decode.poll))
        decode.rest(1e-3)
    transfer.wait()
    return max(polls)


def _longest_read(slices: Raw) -> float:
    """Seconds of the longest read of all slices, one after the other."""
    return max(_taken(partial(slices.read, [span])) for span in slices.spans)


def _taken(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
