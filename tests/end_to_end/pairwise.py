"""All pairs: few cases in which every two values of any two dimensions meet at least once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

Dimensions = Mapping[str, Sequence[str]]
Setting = tuple[str, str]
Pair = tuple[Setting, Setting]
Clash = Callable[[Setting, Setting], bool]


def pairs(dimensions: Dimensions, clash: Clash) -> list[Pair]:
    """Every two (dimension, value) of two dimensions that do not clash, in the order of the dimensions."""
    every = [[(name, value) for value in values] for name, values in dimensions.items()]
    found = [pair for one, other in combinations(every, 2) for pair in product(one, other)]
    return [pair for pair in found if not clash(*pair)]


def covering(dimensions: Dimensions, clash: Clash) -> list[dict[str, str]]:
    """Cases that meet every pair of `pairs`. The same dimensions give the same cases."""
    left = dict.fromkeys(pairs(dimensions, clash))
    cases = []
    while left:
        case = _completed(dimensions, clash, left, next(iter(left)))
        for pair in combinations(case.items(), 2):
            left.pop(pair, None)
        cases.append(case)
    return cases


def _completed(dimensions: Dimensions, clash: Clash, left: Mapping[Pair, None], begin: Pair) -> dict[str, str]:
    """The case that begins with a pair; every other dimension takes what meets the most pairs still left."""
    chosen, rank = dict(begin), {name: number for number, name in enumerate(dimensions)}
    sizes = sorted(dimensions, key=lambda name: -len(dimensions[name]))
    for name in (n for n in sizes if n not in chosen):
        free = [v for v in dimensions[name] if not any(clash(*_ordered(rank, (name, v), s)) for s in chosen.items())]
        chosen[name] = max(free, key=lambda v: sum(_ordered(rank, (name, v), s) in left for s in chosen.items()))
    return {name: chosen[name] for name in dimensions}


def _ordered(rank: Mapping[str, int], one: Setting, other: Setting) -> Pair:
    return (one, other) if rank[one[0]] < rank[other[0]] else (other, one)
