"""Many small requests at once to one peer: how many a second, and how long a poll keeps its thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING

from kvplan.bench.peer import SECONDS, PeerPair, blocks_of, met, request
from kvplan.bench.report import Row

if TYPE_CHECKING:
    from kvplan.bench.raw import Raw
    from kvplan.runtime import Transfer

AREA = "many requests"
# A worker of one layer, with blocks of 64 KiB; prefill holds the requests of all samples from the start.
MODEL, SIDE, KIB = "qwen3-0.6b", "pp=28", 64
AT_ONCE, REQUESTS, SAMPLES = (1, 8, 64), 200, 6
# Bytes of a slice, and the slices of a request.
LARGE, SLICES = "llama-3.1-8b", ((8 << 20, 16), (64 << 20, 8))
PAUSE = 0.05


def measure(pairs: int) -> list[Row]:
    """Measure requests a second, from submit to done; the first sample of each is not counted."""
    return [*rates(AT_ONCE), *(_longest_poll(pairs, *slices) for slices in SLICES)]


def rates(numbers: Sequence[int]) -> list[Row]:
    """Return a row for each number of requests at once."""
    with met(MODEL, SIDE, SIDE, lambda _: max(numbers), len(numbers) * REQUESTS * SAMPLES, pause=PAUSE) as pair:
        return [_rate(pair, at_once) for at_once in numbers]


def _rate(pair: PeerPair, at_once: int) -> Row:
    rates = [REQUESTS / _seconds(pair, at_once) for _ in range(SAMPLES)][1:]
    low, _, high = quantiles(rates, n=4, method="inclusive")
    details: dict[str, object] = {"rates": rates, "requests": REQUESTS}
    value, name = f"{median(rates):,.0f} a second", f"{KIB} KiB, {at_once} at once"
    return Row(AREA, name, value, spread=f"{low:,.0f}..{high:,.0f}", pairs=len(rates), details=details)


def _seconds(pair: PeerPair, at_once: int) -> float:
    """Return the seconds of a sample in which the next request begins when one has ended."""
    decode, free, running = pair.decode, list(range(at_once)), dict["Transfer", int]()
    begun, began = 0, time.perf_counter()
    while begun < REQUESTS or running:
        with decode.together():
            for block in [free.pop() for _ in range(min(len(free), REQUESTS - begun))]:
                running[decode.submit(request(pair.plan, 1, next(pair.names), block), SECONDS)] = block
                begun += 1
        decode.run_once()
        ended = [transfer for transfer in running if transfer.ended]
        free += [running.pop(transfer.wait()) for transfer in ended]
        if not ended:
            decode.rest(1e-3)
    return time.perf_counter() - began


def _longest_poll(pairs: int, size: int, count: int) -> Row:
    """Compare the longest poll of a request of `count` slices of `size` bytes with the longest read of one by hand."""
    from kvplan.runtime import Limits

    with met(LARGE, "tp=1", "tp=1", blocks_of(count * size), 1 + pairs, limits=Limits(slice_bytes=size)) as pair:
        slices = pair.in_spans(size)
        times = [(_polled(pair, name), _longest_read(slices)) for name in pair.names][1:]
    ratios = [poll / read for poll, read in times]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    name, polls = f"longest poll, slices of {size >> 20} MiB", [poll for poll, _ in times]
    return Row(
        AREA, name, f"{middle:.2f}x one slice", spread=f"{low:.2f}..{high:.2f}", pairs=pairs, details={"polls": polls}
    )


def _polled(pair: PeerPair, name: str) -> float:
    """Return the seconds of the longest poll of one request."""
    decode, polls = pair.decode, list[float]()
    transfer = decode.submit(request(pair.plan, pair.blocks, name), SECONDS)
    while not transfer.ended:
        polls.append(_duration(decode.run_once))
        decode.rest(1e-3)
    transfer.wait()
    return max(polls)


def _longest_read(slices: Raw) -> float:
    """Return the seconds of the longest read of all slices, one after the other."""
    return max(_duration(partial(slices.read, [span])) for span in slices.spans)


def _duration(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
