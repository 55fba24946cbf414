"""Limits on bytes in flight, per peer and in all, and the queue that admits jobs within them."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from kvplan.runtime.errors import LimitedError

MIB = 1 << 20
WAITING = 1 << 17

Token = TypeVar("Token", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes in flight to or from one peer and all peers, bytes of one read or write, requests in progress.

    Raises LimitedError if one is no whole number from 1, or a slice is above a peer's bytes, or these above the total.
    """

    bytes_per_peer: int = 1024 * MIB
    bytes_total: int = 4096 * MIB
    slice_bytes: int = 256 * MIB
    requests: int = 4096

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise LimitedError(f"the limit {field.name} is {value!r}: give a whole number from 1")
        self._check_order("slice_bytes", "bytes_per_peer")
        self._check_order("bytes_per_peer", "bytes_total")

    def _check_order(self, low: str, high: str) -> None:
        small, large = getattr(self, low), getattr(self, high)
        if small > large:
            raise LimitedError(f"{low} is {small}, above {high}, {large}: lower the one or raise the other")


@dataclass(slots=True, eq=False)
class _Job(Generic[Token]):
    peer: str
    request: str
    size: int
    token: Token


class AdmissionQueue(Generic[Token]):
    """A queue that admits jobs of known sizes: peers in turn, the requests of a peer in turn, their jobs in order.

    Smaller jobs do not overtake one that does not fit. If it does not fit its peer's limit, only that peer waits; if it
    does not fit the total, all wait. A job that is larger than a limit is admitted alone.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._queues: dict[str, OrderedDict[str, deque[_Job[Token]]]] = {}
        self._turns: OrderedDict[str, None] = OrderedDict()  # peers with jobs, except those at their limit
        self._waiting: dict[Token, _Job[Token]] = {}
        self._posted: dict[Token, _Job[Token]] = {}
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def want(self, peer: str, request: str, size: int, token: Token) -> None:
        """Queue a job of `size` bytes. Raises LimitedError if 131,072 jobs of the peer wait."""
        if self._counts[peer] >= WAITING:
            raise LimitedError(
                f"{WAITING} jobs of peer {peer} wait, the most there may be: ask again when some are done"
            )
        if peer not in self._queues:
            self._queues[peer], self._turns[peer] = OrderedDict(), None
        job = self._waiting[token] = _Job(peer, request, size, token)
        self._queues[peer].setdefault(request, deque()).append(job)
        self._counts[peer] += 1

    def admit(self, most: int | None = None) -> list[Token]:
        """Return the jobs that may begin now, at most `most` bytes in all or one job. In flight until `done`."""
        admitted: list[Token] = []
        size = 0
        while self._turns:
            peer = next(iter(self._turns))
            job = next(iter(self._queues[peer].values()))[0]
            if most is not None and not _fits(size, job.size, most):
                break
            if not _fits(self._bytes[peer], job.size, self.limits.bytes_per_peer):
                del self._turns[peer]
                continue
            if not _fits(self._total, job.size, self.limits.bytes_total):
                break
            self._take(job)
            size += job.size
            admitted.append(job.token)
        return admitted

    def done(self, token: Token) -> None:
        """End a job, so that its bytes are no longer in flight. Does nothing if it is not in flight."""
        if (job := self._posted.pop(token, None)) is None:
            return
        self._total -= job.size
        self._bytes[job.peer] -= job.size
        if not self._bytes[job.peer]:
            del self._bytes[job.peer]
        self._wake(job.peer)

    def drop_request(self, request: str, peer: str) -> None:
        """Forget the jobs of a request with one peer that wait. Jobs in flight count until `done`."""
        queues = self._queues.get(peer)
        if queues is None or request not in queues:
            return
        jobs = list(queues[request])
        for job in jobs:
            del self._waiting[job.token]
        queues[request].clear()
        self._unqueue(jobs)
        self._wake(peer)

    def tokens(self) -> list[Token]:
        """Return the tokens of all jobs that wait or are in flight."""
        return [*self._posted, *self._waiting]

    def in_flight(self, peer: str | None = None) -> int:
        """Return the bytes in flight, of one peer or in all."""
        return self._total if peer is None else self._bytes[peer]

    def waiting(self, peer: str | None = None) -> int:
        """Return how many jobs wait, of one peer or in all."""
        return len(self._waiting) if peer is None else self._counts[peer]

    def _take(self, job: _Job[Token]) -> None:
        queues = self._queues[job.peer]
        queues[job.request].popleft()
        queues.move_to_end(job.request)
        self._turns.move_to_end(job.peer)
        self._posted[job.token] = job
        del self._waiting[job.token]
        self._total += job.size
        self._bytes[job.peer] += job.size
        self._unqueue([job])

    def _unqueue(self, jobs: list[_Job[Token]]) -> None:
        """Count out jobs of one request that wait no more, and remove its queue and its peer's if they are empty."""
        peer, request = jobs[0].peer, jobs[0].request
        self._counts[peer] -= len(jobs)
        if not self._queues[peer][request]:
            del self._queues[peer][request]
        if not self._queues[peer]:
            del self._queues[peer], self._counts[peer]
            self._turns.pop(peer, None)

    def _wake(self, peer: str) -> None:
        """Give a peer turns again, after its bytes in flight or its next job changed."""
        if peer in self._queues:
            self._turns.setdefault(peer)


def _fits(in_flight: int, size: int, limit: int) -> bool:
    return in_flight == 0 or in_flight + size <= limit
