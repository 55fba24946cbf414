"""A dump: where a running engine keeps its caches on one worker, as it can say itself. Nothing of a layout is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

BLOCK, TOKEN, HEAD, CONTENT = "block", "token", "head", "content"
AXES = (BLOCK, TOKEN, HEAD, CONTENT)
# The number of a layer in its name: the first number that stands alone between dots.
NUMBER = re.compile(r"(?:^|\.)(\d{1,9})(?=\.|$)")


@dataclass(frozen=True, slots=True)
class DumpedGroup:
    """Layers by name that share a block table; tokens of a logical and of a kernel block, 0 for a state.

    `window` and `chunk` are the tokens that its layers attend to, 0 for all.
    """

    layers: tuple[str, ...]
    store: str
    tokens: int
    kernel: int
    window: int
    chunk: int


@dataclass(frozen=True, slots=True)
class DumpedLayer:
    """One view of an allocation. `counts` has the items and `steps` the bytes between two of them, axis by axis.

    Blocks are kernel blocks. `size` is the bytes of one element, `layer` the layer's number in the model, `group` the
    index of its group, `offset` the first byte in allocation number `allocation`.
    """

    name: str
    layer: int
    group: int
    allocation: int
    offset: int
    counts: Mapping[str, int]
    steps: Mapping[str, int]
    dtype: str
    size: int
    spec: Mapping[str, object]

    @property
    def end(self) -> int:
        """The first byte behind everything that the view reaches."""
        reach = sum((self.counts[axis] - 1) * self.steps[axis] for axis in self.counts)
        return self.offset + reach + self.size

    @property
    def bytes(self) -> int:
        """The bytes of one layer in one kernel block, without what lies between two blocks."""
        found = self.size
        for axis, count in self.counts.items():
            found *= 1 if axis == BLOCK else count
        return found


@dataclass(frozen=True, slots=True)
class Dump:
    """What one worker printed: `side` are its engine's options by name, `rank` its coordinate on every axis of `mesh`.

    `blocks` is the pool's size in logical blocks, `allocations` the bytes of each.
    """

    engine: str
    version: str
    model: str
    layout: str
    side: Mapping[str, str]
    mesh: Mapping[str, int]
    rank: Mapping[str, int]
    blocks: int
    allocations: tuple[int, ...]
    groups: tuple[DumpedGroup, ...]
    layers: tuple[DumpedLayer, ...]


def number_in(name: str) -> int | None:
    """The layer's number that its name has, if any."""
    found = NUMBER.search(name)
    return int(found[1]) if found else None
