"""Blocks of an engine, as its scheduler hands them out: at random, each to one request at a time."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random


class Allocator:
    """Logical blocks (kv) and slots (state) of one engine, shared by all its workers."""

    def __init__(self, logical: int, random: Random) -> None:
        self.logical, self._random = logical, random
        self._free = {kind: set(range(logical)) for kind in ("kv", "state")}

    def take(self, blocks: int) -> tuple[list[int], int] | None:
        """Ids of so many blocks, and a slot; None where they are not free."""
        if blocks > len(self._free["kv"]) or not self._free["state"]:
            return None
        return self._some("kv", blocks), self._some("state", 1)[0]

    def give(self, ids: Iterable[int], slot: int) -> None:
        """Take back. Raises ValueError for what is free already."""
        self._give("kv", ids)
        self._give("state", [slot])

    def used(self) -> dict[str, int]:
        return {kind: self.logical - len(free) for kind, free in self._free.items()}

    def _some(self, kind: str, count: int) -> list[int]:
        found = self._random.sample(sorted(self._free[kind]), count)
        self._free[kind].difference_update(found)
        return found

    def _give(self, kind: str, ids: Iterable[int]) -> None:
        back = set(ids)
        if twice := back & self._free[kind]:
            raise ValueError(f"{kind} blocks {sorted(twice)} are freed twice")
        self._free[kind] |= back
