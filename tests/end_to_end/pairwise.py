"""All pairs: few cases in which every two values of any two dimensions meet at least once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

Dimensions = Mapping[str, Sequence[str]]
Setting = tuple[str, str]
Pair = tuple[Setting, Setting]
Partners = Mapping[Setting, set[Setting]]
Clash = Callable[[Setting, Setting], bool]


def pairs(dimensions: Dimensions, clash: Clash) -> list[Pair]:
    """Every two (dimension, value) of two dimensions that do not clash, in the order of the dimensions."""
    every = [[(name, value) for value in values] for name, values in dimensions.items()]
    found = [pair for one, other in combinations(every, 2) for pair in product(one, other)]
    return [pair for pair in found if not clash(*pair)]


def covering(dimensions: Dimensions, clash: Clash) -> list[dict[str, str]]:
    """Cases that meet every pair of `pairs`. The same dimensions give the same cases."""
    every = pairs(dimensions, clash)
    left, met = dict.fromkeys(every), _partners(every)
    may, cases = _partners(every), []
    while left:
        case = _completed(dimensions, may, met, next(iter(left)))
        for one, other in combinations(case.items(), 2):
            left.pop((one, other), None)
            met[one].discard(other)
            met[other].discard(one)
        cases.append(case)
    return cases


def _partners(every: list[Pair]) -> defaultdict[Setting, set[Setting]]:
    """Each setting's partners in pairs."""
    found = defaultdict[Setting, set[Setting]](set)
    for one, other in every:
        found[one].add(other)
        found[other].add(one)
    return found


def _completed(dimensions: Dimensions, may: Partners, left: Partners, begin: Pair) -> dict[str, str]:
    """The case that begins with a pair; every other dimension takes what meets the most pairs still left."""
    chosen = dict(begin)
    sizes = sorted(dimensions, key=lambda name: -len(dimensions[name]))
    for name in (n for n in sizes if n not in chosen):
        free = [value for value in dimensions[name] if chosen.items() <= may[name, value]]
        chosen[name] = max(free, key=lambda value: len(chosen.items() & left[name, value]))
    return {name: chosen[name] for name in dimensions}
