"""One model of every kind in full size, simulated: `make full` runs this as a program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from kvplan.compiler.api import compile_pair
from kvplan.compiler.fits import check
from kvplan.compiler.report import Report
from kvplan.compiler.sample import sample_range, sample_request
from kvplan.compiler.simulate import simulate
from kvplan.compiler.trace import copies
from tests.layouts.sweep import legal, library

Pair = tuple[str, str, str]


def smallest(kind: str) -> str:
    """The model with the fewest cached layers that has a kind."""
    using = [m for m in library().models.values() if any(c.kind == kind for c in m.caches.values())]
    return min(using, key=lambda model: (sum(len(cache.layers) for cache in model.caches.values()), model.name)).name


def pairs() -> Iterator[tuple[str, Pair]]:
    """For every kind that a model has, the first two sides that run, fewer workers to more and back."""
    used = {cache.kind for model in library().models.values() for cache in model.caches.values()}
    for kind in sorted(used):
        model = smallest(kind)
        few, many = (sides := legal(model, library().default_engine))[0], sides[:2][-1]
        yield kind, (model, few, many)
        yield kind, (model, many, few)


def simulated(pair: Pair) -> Report:
    made = compile_pair(library(), *pair)
    request = sample_request(made.prefill, made.decode, sample_range(made.prefill, made.decode))
    check(request, made.prefill, made.decode)
    return simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)


def main() -> int:
    wanted = list(dict.fromkeys((pair, kind) for kind, pair in pairs()))
    wrong = 0
    with ProcessPoolExecutor(2) as pool:
        for (pair, kind), report in zip(wanted, pool.map(simulated, [pair for pair, _ in wanted]), strict=True):
            print(f"{kind}: {pair[0]} {pair[1]} -> {pair[2]}\n  {report.text()}", flush=True)
            wrong += not report.right
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
