"""Rows of the pool: each item's rows, its users, and when other items may take them. Nothing here touches memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

# The size of an item by its hash, in rows.
Sizes = Mapping[str, int]


@dataclass(slots=True, eq=False)
class PooledItem:
    """An item with its blocks [first, first + blocks), which hold `rows` rows.

    `ticket` is new each time an item gets blocks. It is `ready` once its rows are there. `users` are requests
    and holds that need it. While it is `arriving` from another engine, its rows may still be written. Workers may
    read or write them until they have done step `step`.
    """

    hash: str
    rows: int
    first: int
    blocks: int
    ticket: int
    ready: bool = False
    arriving: bool = False
    users: set[str] = field(default_factory=set)
    step: int = 0

    @property
    def block_ids(self) -> range:
        return range(self.first, self.first + self.blocks)


class RowPool:
    """`blocks` blocks of `block_rows` rows. `done` says whether all workers have done a step.

    An item without users is kept until its blocks are needed; the least recently used items go first.
    """

    def __init__(self, blocks: int, block_rows: int, done: Callable[[int], bool]) -> None:
        self._blocks, self._block_rows, self._done = blocks, block_rows, done
        # By hash, the most recently used one at the end.
        self._items: dict[str, PooledItem] = {}
        # Dropped items whose blocks are not free yet.
        self._leaving: list[PooledItem] = []
        self._tickets = count(1)

    def __iter__(self) -> Iterator[PooledItem]:
        return iter(self._items.values())

    def find(self, hash: str) -> PooledItem | None:
        return self._items.get(hash)

    def use(self, item: PooledItem, user: str) -> None:
        """Note that `user` needs an item from now on."""
        item.users.add(user)
        self._items[item.hash] = self._items.pop(item.hash)

    def fits(self, sizes: Sizes) -> bool:
        """Whether the whole pool has enough blocks for these sizes."""
        return sum(map(self._count, sizes.values())) <= self._blocks

    def take(self, sizes: Sizes, user: str) -> list[PooledItem] | None:
        """Take blocks for new items that `user` needs: for all of them, or None if there is no room for all."""
        taken: list[PooledItem] = []
        for hash, rows in sizes.items():
            item = self._take(hash, rows, user)
            if item is None:
                for one in taken:
                    self.drop(one)
                return None
            taken.append(item)
        return taken

    def drop(self, item: PooledItem) -> None:
        """Hide an item from all lookups. Its blocks are free once nothing can write to them."""
        if self._items.get(item.hash) is item:
            del self._items[item.hash]
            item.users.clear()
            self._leaving.append(item)

    def _take(self, hash: str, rows: int, user: str) -> PooledItem | None:
        assert hash not in self._items
        size = self._count(rows)
        self._leaving = [item for item in self._leaving if not self._idle(item)]
        kept = [item for item in self._items.values() if not self._idle(item)]
        if _gap([*kept, *self._leaving], size, self._blocks) is None:
            return None
        while (first := _gap([*self._items.values(), *self._leaving], size, self._blocks)) is None:
            oldest = next(item for item in self._items.values() if self._idle(item))
            del self._items[oldest.hash]
        item = self._items[hash] = PooledItem(hash, rows, first, size, next(self._tickets), users={user})
        return item

    def _idle(self, item: PooledItem) -> bool:
        return not item.users and not item.arriving and self._done(item.step)

    def _count(self, rows: int) -> int:
        return blocks_of(rows, self._block_rows)


def blocks_of(rows: int, block_rows: int) -> int:
    """Return the number of an item's blocks: one without rows has a block, too."""
    return max(1, -(-rows // block_rows))


def _gap(taken: Sequence[PooledItem], size: int, blocks: int) -> int | None:
    """Return the first of `size` consecutive free blocks."""
    first = 0
    for item in sorted(taken, key=lambda item: item.first):
        if item.first - first >= size:
            return first
        first = max(first, item.first + item.blocks)
    return first if blocks - first >= size else None
