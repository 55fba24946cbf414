"""Digests by (cache, layer): shares of several workers added up, and those of two sides compared."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.runtime.checksum.keys import MASK
from kvplan.runtime.errors import ChecksumError

Sums = Mapping[tuple[str, int], int]


def added(*shares: Sums) -> dict[tuple[str, int], int]:
    """The sum of the shares of several workers."""
    found: dict[tuple[str, int], int] = {}
    for share in shares:
        for key, value in share.items():
            found[key] = (found.get(key, 0) + value) & MASK
    return found


def first_unlike(mine: Sums, theirs: Sums) -> tuple[str, int] | None:
    """The first (cache, layer), lowest layer first, whose digests differ or that only one of two has."""
    unlike = [key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
    return min(unlike, key=lambda key: (key[1], key[0]), default=None)


def check(mine: Sums, theirs: Sums) -> None:
    """Raises ChecksumError with the first (cache, layer) whose digests differ, and both of them."""
    found = first_unlike(mine, theirs)
    if found is None:
        return
    here, there = ("none" if value is None else f"{value:#018x}" for value in (mine.get(found), theirs.get(found)))
    where = f"layer {found[1]} of cache {found[0]!r}"
    raise ChecksumError(f"{where} differs: its checksum is {here} here, {there} there. Do not use what arrived")
