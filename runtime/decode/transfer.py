"""One request on its way, as its caller sees it: polled, waited for, awaited, called back, or used as an event."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.runtime.decode.outcome import Arrived, Outcome, outcome
from kvplan.runtime.decode.quarantine import Written
from kvplan.runtime.errors import CancelledTransferError
from kvplan.runtime.polling import Polled, ended
from kvplan.runtime.transfer.demand import Demand

if TYPE_CHECKING:
    from kvplan.runtime.checksum.checksum import Sample
    from kvplan.runtime.decode.parts import PeerProgress

SHORTEST, LONGEST = 20e-6, 1e-3
LONGEST_TIMEOUT = 1e9
NOTHING = Demand({}, {})


def seconds(timeout: object, error: type[KvplanError]) -> float:
    """A timeout as a number that can be added to the time. Raises `error`."""
    if (
        not isinstance(timeout, float | int | np.integer | np.floating)
        or isinstance(timeout, bool)
        or not 0 <= timeout < LONGEST_TIMEOUT
    ):
        text = f"a timeout is a number of seconds from 0 to below {LONGEST_TIMEOUT:.0f}"
        raise error(f"{text}, not {ascii(timeout)[:80]}")
    return float(timeout)


class TransferOwner(Polled, Protocol):
    """The worker of a transfer."""

    def rest(self, seconds: float) -> None: ...

    def cancel(self, transfer: Transfer, error: RequestError) -> None: ...

    def watch(self, transfer: Transfer, callback: Callable[[Transfer], None]) -> bool: ...


@dataclass(slots=True, eq=False)
class Transfer:
    """One request and how far it is. `state` is running, done, failed, cancelled or expired; `error` then says why.

    `deadline` is by the worker's clock. `written` are the decode blocks that it writes, by group.
    """

    request: Request
    deadline: float
    began: float
    worker: TransferOwner
    fed: bool = False
    sample: Sample | None = None
    attempt: int = 0
    state: str = "running"
    error: KvplanError | None = None
    demand: Demand = NOTHING
    parts: list[PeerProgress] = field(default_factory=list)
    written: Written = field(default_factory=dict)
    callbacks: list[Callable[[Transfer], None]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.state != "running"

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it runs."""
        if not self.ended:
            return None
        return Arrived(self.bytes) if self.error is None else outcome(self.error)

    @property
    def untrusted(self) -> dict[str, tuple[int, ...]]:
        """Decode block ids by group that may hold anything, after any end but done."""
        found = self.outcome
        return {} if found is None or isinstance(found, Arrived) else dict(found.untrusted)

    @property
    def bytes(self) -> int:
        """Bytes that have arrived."""
        return sum(part.arrived for part in self.parts)

    @property
    def total(self) -> int:
        """Bytes that the request comes to on this worker."""
        return sum(part.expected for part in self.parts)

    @property
    def progress(self) -> float:
        """From 0 to 1, which only a request that is done reaches: by bytes, each prefill worker counting alike."""
        if self.state == "done":
            return 1.0
        shares = [part.progress for part in self.parts]
        return min(0.999, sum(shares) / len(shares)) if shares else 0.0

    @property
    def requests(self) -> int:
        """Requests that the transport was predicted to post so far."""
        return sum(part.requests for part in self.parts)

    @property
    def posted(self) -> int | None:
        """Requests that the transport counted, None where it does not count."""
        counts = [part.posted for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    def query(self) -> bool:
        """Whether everything has arrived; the face of an event, as `offer` takes one. Raises the error."""
        self.poll()
        return self.ended and self._result() is self

    def poll(self) -> bool:
        """Progress everything of this worker; whether this transfer has ended."""
        self.worker.poll()
        return self.ended

    def wait(self) -> Transfer:
        """Block until the end, which the deadline bounds. Raises the transfer's error."""
        pause = SHORTEST
        while not self.poll():
            self.worker.rest(pause)
            pause = min(2 * pause, LONGEST)
        return self._result()

    def __await__(self) -> Generator[Any, None, Transfer]:
        yield from ended(self).__await__()
        return self._result()

    def on_end(self, callback: Callable[[Transfer], None]) -> None:
        """Call `callback` with this transfer when it ends, from within a poll; at once if it has ended."""
        if not self.worker.watch(self, callback):
            callback(self)

    def cancel(self) -> None:
        """Give the request up. Its blocks stay in quarantine while a write may still land."""
        self.worker.cancel(self, CancelledTransferError(f"request {self.request.id} was cancelled"))

    def _result(self) -> Transfer:
        if self.error is not None:
            raise self.error
        return self
