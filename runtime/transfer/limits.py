"""How much may be in flight at once, per peer and in all, and who is next."""

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

    Raises LimitedError where one is no whole number from 1, or a slice does not fit a peer, or a peer not the total.
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
    """Admits jobs of a known size: peers in turn, the requests of a peer in turn, the jobs of a request in order.

    A job that does not fit waits until it does, and is not overtaken by smaller ones: in its peer's limit it holds up
    that peer only, in the total all of them. One that is larger than a limit goes alone.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._queues: dict[str, OrderedDict[str, deque[_Job[Token]]]] = {}
        self._turns: OrderedDict[str, None] = OrderedDict()  # peers with jobs, but for those at their limit
        self._waiting: dict[Token, _Job[Token]] = {}
        self._posted: dict[Token, _Job[Token]] = {}
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def want(self, peer: str, request: str, size: int, token: Token) -> None:
        """Queue a job of `size` bytes. Raises LimitedError where 131,072 jobs of the peer wait."""
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
        """The jobs that may begin now, each once: of at most `most` bytes in all, or one. In flight until `done`."""
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
        """Give a job's bytes back; nothing where it is not in flight (any more)."""
        if (job := self._posted.pop(token, None)) is None:
            return
        self._total -= job.size
        self._bytes[job.peer] -= job.size
        if not self._bytes[job.peer]:
            del self._bytes[job.peer]
        self._wake(job.peer)

    def drop_request(self, request: str, peer: str) -> None:
        """Forget what waits of a request with one peer. What is in flight counts until done."""
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
        """All jobs that wait or are in flight."""
        return [*self._posted, *self._waiting]

    def in_flight(self, peer: str | None = None) -> int:
        """Bytes in flight, of one peer or in all."""
        return self._total if peer is None else self._bytes[peer]

    def waiting(self, peer: str | None = None) -> int:
        """Jobs that wait, of one peer or in all."""
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
        """Forget that jobs of one request wait, and its queue and its peer's where nothing is left in them."""
        peer, request = jobs[0].peer, jobs[0].request
        self._counts[peer] -= len(jobs)
        if not self._queues[peer][request]:
            del self._queues[peer][request]
        if not self._queues[peer]:
            del self._queues[peer], self._counts[peer]
            self._turns.pop(peer, None)

    def _wake(self, peer: str) -> None:
        """A peer that was at its limit, or whose next job is another now, has turns again."""
        if peer in self._queues:
            self._turns.setdefault(peer)


def _fits(in_flight: int, size: int, limit: int) -> bool:
    return in_flight == 0 or in_flight + size <= limit
