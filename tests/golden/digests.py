"""The digests of the shipped models for every tensor parallelism from 1 to 16 that the default engine can run, on both
sides. Run as a program it prints them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

from tests.layouts.sweep import legal, library
from tests.paths import ROOT

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide

FILE = ROOT / "examples/digests.txt"
HEAD = "# model, prefill tp, then for each decode tp the beginning of the plan's digest; `make goldens` writes this\n"
SHORT = 12


def lines(model: str) -> list[str]:
    """One line for every prefill side of a model."""
    found = library().model(model)
    sides = {side: bind(library(), found, side) for side in legal(model, library().default_engine)}
    return [
        " ".join([model, _tp(one), *(f"{_tp(other)}:{_digest(prefill, sides[other], found.title)}" for other in sides)])
        for one, prefill in sides.items()
    ]


def _digest(prefill: BoundSide, decode: BoundSide, title: str) -> str:
    return compile_bound(prefill, decode, title=title).plan.digest[:SHORT]


def _tp(side: str) -> str:
    return side.removeprefix("tp=").partition(",")[0]


def written(model: str) -> list[str]:
    """The lines that the file has for a model."""
    return [line for line in FILE.read_text().splitlines() if line.startswith(f"{model} ")]


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        found = [line for part in pool.map(lines, sorted(library().models)) for line in part]
    print(HEAD + "\n".join(found))
