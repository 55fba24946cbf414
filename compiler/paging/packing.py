"""Packing: groups whose pages of different sizes lie side by side in one block.

Caches that need the same blocks form a lot. A lot with equally many layers of each page size is a repeating pattern
and is cut into groups of equally many repeats; states are cut to fit the block that the others need anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.compiler.bound import BoundCache
from kvplan.compiler.paging.pool import PooledCache, reach
from kvplan.dsl.text.grouped import grouped

Layers = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class PackedCaches:
    """Caches that need the same blocks, and their layers by page bytes, in the model's order."""

    caches: tuple[BoundCache, ...]
    pages: tuple[tuple[int, Layers], ...]

    @property
    def repeats(self) -> int:
        """The number of layers of the most frequent page size."""
        return max(len(layers) for _, layers in self.pages)

    @property
    def balanced(self) -> bool:
        return len({len(layers) for _, layers in self.pages}) == 1

    @property
    def layers(self) -> int:
        return sum(len(layers) for _, layers in self.pages)

    def width(self, parts: int) -> int:
        """The bytes of a block of the largest of `parts` groups."""
        return sum(-(-len(layers) // parts) * page for page, layers in self.pages)


def packed(entries: Sequence[PooledCache]) -> list[tuple[tuple[BoundCache, ...], list[Layers]]]:
    """Return each lot's caches and the layers of each of its groups."""
    lots = [_lot(alike) for alike in grouped((reach(entry), entry) for entry in entries).values()]
    least = max((lot.repeats for lot in lots if lot.balanced and len(lot.pages) > 1), default=0)
    size = balanced_size([lot.repeats for lot in lots if lot.balanced], least) if least else 0
    parts = [-(-lot.repeats // size) if size and lot.balanced else 1 for lot in lots]
    loose = [_is_loose(lot, size) for lot in lots]
    block = max(lot.width(lot.layers if free else n) for lot, n, free in zip(lots, parts, loose, strict=True))
    fitted = [_fitting(lot, n, block) if free else n for lot, n, free in zip(lots, parts, loose, strict=True)]
    return [(lot.caches, _cut(lot, n)) for lot, n in zip(lots, fitted, strict=True)]


def balanced_size(counts: Sequence[int], least: int) -> int:
    """Return the largest size from `least` up that leaves least over when every count is cut into pieces of it."""
    sizes = range(least, max(max(counts), least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))


def _lot(entries: Sequence[PooledCache]) -> PackedCaches:
    layers = [(layer, entry.cache.name, entry.page) for entry in entries for layer in entry.cache.layers]
    pages = grouped((page, (name, layer)) for layer, name, page in sorted(layers))
    return PackedCaches(tuple(entry.cache for entry in entries), tuple(pages.items()))


def _is_loose(lot: PackedCaches, size: int) -> bool:
    """Whether a lot can be cut down to one layer per group: states, and windows if no pattern repeats."""
    first = lot.caches[0]
    return first.store != "tokens" or (not size and first.needs.keep is not None)


def _fitting(lot: PackedCaches, parts: int, block: int) -> int:
    """Return the number of parts with which a loose lot's groups fit `block` bytes."""
    fits = max(block // lot.pages[0][0], 1)
    return max(parts, -(-lot.layers // fits))


def _cut(lot: PackedCaches, parts: int) -> list[Layers]:
    return [[member for _, layers in lot.pages for member in layers[i::parts]] for i in range(parts)]
