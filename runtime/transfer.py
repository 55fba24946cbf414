"""One request on its way: polled, waited for, awaited or called back."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kvplan.runtime.errors import CancelledTransferError, KvplanError, RequestError
from kvplan.runtime.quarantine import Written
from kvplan.runtime.request import Request
from kvplan.runtime.transport import Handle

if TYPE_CHECKING:
    from kvplan.runtime.pull import Puller

SHORTEST, LONGEST = 20e-6, 1e-3
LONGEST_TIMEOUT = 1e9


def seconds(timeout: object, error: type[KvplanError]) -> float:
    """A timeout as a number that can be added to the time. Raises `error`."""
    if (
        not isinstance(timeout, float | int | np.integer | np.floating)
        or isinstance(timeout, bool)
        or not 0 <= timeout < LONGEST_TIMEOUT
    ):
        raise error(f"a timeout is a number of seconds from 0 to below {LONGEST_TIMEOUT:.0f}")
    return float(timeout)


@dataclass(slots=True, eq=False)
class Part:
    """What one source was asked for. `handles` are the reads not done yet, None for one that failed when posted.

    `requests` were predicted; `posted` are those that the transport counted, None where it does not count. `whole`
    says that every read was posted: before that, no handles mean nothing.
    """

    worker: int
    peer: str
    requests: int
    handles: list[Handle | None]
    posted: int | None = 0
    whole: bool = False

    @property
    def done(self) -> bool:
        return self.whole and not self.handles


@dataclass(slots=True, eq=False)
class Transfer:
    """The outcome of one request. `state` is running, done or failed, and `error` then says why.

    `requests` is the number of requests predicted. `unnotified` are prefill workers that could not be told.
    """

    request: Request
    deadline: float
    puller: Puller
    state: str = "running"
    error: KvplanError | None = None
    parts: list[Part] = field(default_factory=list)
    written: Written = field(default_factory=dict)
    requests: int = 0
    unnotified: tuple[int, ...] = ()
    callbacks: list[Callable[[Transfer], None]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.state != "running"

    @property
    def posted(self) -> int | None:
        """Requests that the transport counted, None where it does not count."""
        counts = [part.posted for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def untrusted(self) -> dict[str, tuple[int, ...]]:
        """Decode block ids by group that may hold anything, after a failure."""
        return self.error.untrusted if isinstance(self.error, RequestError) else {}

    def poll(self) -> bool:
        """Progress everything of this puller; whether this transfer has ended."""
        self.puller.poll()
        return self.ended

    def wait(self) -> Transfer:
        """Block until the end, which the deadline bounds. Raises the transfer's error."""
        pause = SHORTEST
        while not self.poll():
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
        return self._result()

    def __await__(self) -> Generator[Any, None, Transfer]:
        import asyncio

        pause = SHORTEST
        while not self.poll():
            yield from asyncio.sleep(pause).__await__()
            pause = min(2 * pause, LONGEST)
        return self._result()

    def on_end(self, callback: Callable[[Transfer], None]) -> None:
        """Call `callback` with this transfer when it ends, from within a poll; at once if it has ended."""
        if not self.puller.watch(self, callback):
            callback(self)

    def cancel(self) -> None:
        """Give the request up. Its blocks stay in quarantine while a write may still land."""
        self.puller.fail(self, CancelledTransferError(f"request {self.request.id} was cancelled"))

    def _result(self) -> Transfer:
        if self.error is not None:
            raise self.error
        return self
