"""One model of every kind in full size, simulated: `make full` runs this as a program."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from tests.layouts.sweep import library, simulated, usual

from kvplan.compiler.api import compile_pair
from kvplan.compiler.check.audit.verdict import Verdict

Pair = tuple[str, str, str]


def smallest(kind: str) -> str:
    """The model with the fewest cached layers that has a kind."""
    using = [m for m in library().models.values() if any(c.kind == kind for c in m.caches.values())]
    return min(using, key=lambda model: (sum(len(cache.layers) for cache in model.caches.values()), model.name)).name


def pairs() -> dict[Pair, list[str]]:
    """A model of every kind on the first two sides that run, fewer to more and back, and the kinds it is for."""
    found: dict[Pair, list[str]] = {}
    for kind in sorted(library().kinds):
        model = smallest(kind)
        few, many = usual(model)[:2]
        for pair in ((model, few, many), (model, many, few)):
            found.setdefault(pair, []).append(kind)
    return found


def report_of(pair: Pair) -> Verdict:
    return simulated(compile_pair(library(), *pair))


def main() -> int:
    wanted, wrong = pairs(), 0
    with ProcessPoolExecutor(2) as pool:
        for (pair, kinds), report in zip(wanted.items(), pool.map(report_of, wanted), strict=True):
            print(f"{', '.join(kinds)}: {pair[0]} {pair[1]} -> {pair[2]}\n  {report.text()}", flush=True)
            wrong += not report.right
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
