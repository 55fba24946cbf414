"""Exact cover: boxes of coordinates as products of per-axis sets. Equal volumes and no overlap mean: each exactly once.

The argument is that of tilings: finite sets that lie in a whole, share no element and have as many elements together
as the whole partition it. General integer sets need a library (S. Verdoolaege, "isl: An integer set library for the
polyhedral model", ICMS 2010). For products of sets on each axis bit masks suffice, because two products share an
element exactly if they do on every axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

from kvplan.compiler.errors import ProofFailed


@dataclass(frozen=True, slots=True)
class CoordinateSet:
    """Coordinates of `tensor` as a set per axis, each set a bit mask of local indices."""

    tensor: str
    axes: tuple[tuple[str, int], ...]


def check_cover(where: str, tensor: str, extents: Mapping[str, int], regions: Sequence[CoordinateSet]) -> None:
    """Raises ProofFailed (P010, P011, P012) unless `regions` are the whole of `extents`, each coordinate once."""
    total = prod(extents.values())
    for region in regions:
        for axis, mask in region.axes:
            if mask >> extents.get(axis, 0):
                raise ProofFailed("P010", f"{where}: {tensor} is written beyond its {axis} axis")
        if dict(region.axes).keys() != extents.keys():
            raise ProofFailed("P010", f"{where}: {tensor} is written over axes {[a for a, _ in region.axes]}")
    for one, other in combinations(regions, 2):
        if all(mask & dict(other.axes)[axis] for axis, mask in one.axes):
            raise ProofFailed("P011", f"{where}: elements of {tensor} are written twice")
    written = sum(prod(mask.bit_count() for _, mask in region.axes) for region in regions)
    if written != total:
        raise ProofFailed("P012", f"{where}: {written} of {total} elements of {tensor} are written")


def progression(start: int, turns: Sequence[tuple[int, int]]) -> int:
    """Return the mask of start + sum(i * delta) over all turns (count, delta). Raises ProofFailed (P011) on repeats."""
    mask = 1 << start
    for count, delta in turns:
        grown, done = mask, 1
        while done < count:
            # Repeat all turns so far once more, or as many of them as are left.
            more = min(done, count - done)
            grown, done = grown | grown << more * delta, done + more
        if grown.bit_count() != mask.bit_count() * count:
            raise ProofFailed("P011", "a loop writes an element twice")
        mask = grown
    return mask
