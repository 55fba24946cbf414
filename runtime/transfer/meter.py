"""Meter: what was moved for one request between two workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Meter:
    """What was moved so far, in bytes and descriptors. Who moves it counts.

    `staged` are bytes that went by way of a stage, with those between them that nobody asked for. `descriptors` and
    `spans` are predicted; `posted` is what the transport counted, None if it does not count.
    """

    moved: int = 0
    staged: int = 0
    descriptors: int = 0
    spans: int = 0
    posted: int | None = 0

    def count_posted(self, count: int | None) -> None:
        """So many more descriptors, None where the transport did not count them."""
        self.posted = None if count is None or self.posted is None else self.posted + count
