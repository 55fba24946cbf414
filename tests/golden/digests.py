"""The digests of the shipped models for every tensor parallelism from 1 to 16 that the default engine can run, on both
sides. Run as a program it prints them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product

from tests.layouts.sweep import library, usual
from tests.paths import ROOT

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide

FILE = ROOT / "examples/digests.txt"
HEAD = "# model, prefill tp, then for each decode tp the beginning of the plan's digest; `make goldens` writes this\n"
SHORT = 12
Pair = tuple[str, str]


def lines(model: str) -> list[str]:
    """One line for every prefill side of a model."""
    sides = running(model)
    found = computed(model, list(product(sides, sides)))
    return [" ".join([model, one, *(f"{other}:{found[one, other]}" for other in sides)]) for one in sides]


@cache
def running(model: str) -> dict[str, BoundSide]:
    """Every side of a model that runs, by its tensor parallelism."""
    found, names = library().model(model), usual(model)
    return {side.removeprefix("tp=").partition(",")[0]: bind(library(), found, side) for side in names}


def computed(model: str, pairs: list[Pair]) -> dict[Pair, str]:
    """The digest of the plan of each pair, which has one only if it was proved."""
    sides, title = running(model), library().model(model).title
    return {(p, d): compile_bound(sides[p], sides[d], title=title).plan.digest[:SHORT] for p, d in pairs}


def written(model: str) -> dict[Pair, str]:
    """What the file has for a model."""
    rows = [line.split()[1:] for line in FILE.read_text().splitlines() if line.startswith(f"{model} ")]
    return {(one, tp): text for one, *others in rows for tp, text in (word.split(":") for word in others)}


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        found = [line for part in pool.map(lines, sorted(library().models)) for line in part]
    print(HEAD + "\n".join(found))
