"""Released requests, from the step that releases them until callers take them: from any thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.protocol.prefill_effects import Taken

T = TypeVar("T")


class ReleasedRequests:
    """The requests whose blocks are free, until `take` reports them, and then until the core was told of that."""

    def __init__(self) -> None:
        self._untaken, self._taken = deque[Released](), deque[str]()

    def add(self, released: Released) -> None:
        self._untaken.append(released)

    def take(self) -> list[Released]:
        """Each once, whoever takes, too."""
        found = list(taken(self._untaken))
        self._taken.extend(one.request for one in found)
        return found

    def reported(self) -> list[Taken]:
        """The requests that were taken since the last call, for the core."""
        return [Taken(tuple(taken(self._taken)))] if self._taken else []


def taken(found: deque[T]) -> Iterator[T]:
    """Takes what is there, each once whoever takes, too."""
    with suppress(IndexError):
        while True:
            yield found.popleft()
