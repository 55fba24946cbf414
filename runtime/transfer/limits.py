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


class AdmissionQueue(Generic[Token]):
    """A queue that admits jobs of known sizes: peers in turn, the requests of a peer in turn, their jobs in order.

    Smaller jobs do not overtake one that does not fit. If it does not fit its peer's limit, only that peer waits; if it
    does not fit the total, all wait. A job that is larger than a limit is admitted alone.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # The jobs that wait, (bytes, token), by peer and request; and how many wait by peer.
        self._queues: dict[str, OrderedDict[str, deque[tuple[int, Token]]]] = {}
        self._counts = Counter[str]()
        # The peers with jobs, except those at their limit.
        self._turns: OrderedDict[str, None] = OrderedDict()
        # The peer and the bytes of each job in flight, and the bytes by peer and in all.
        self._posted: dict[Token, tuple[str, int]] = {}
        self._bytes, self._total = Counter[str](), 0

    def want(self, peer: str, request: str, size: int, token: Token) -> None:
        """Queue a job of `size` bytes. Raises LimitedError if 131,072 jobs of the peer wait."""
        if self._counts[peer] >= WAITING:
            raise LimitedError(
                f"{WAITING} jobs of peer {peer} wait, the most there may be: ask again when some are done"
            )
        if peer not in self._queues:
            self._queues[peer], self._turns[peer] = OrderedDict(), None
        self._queues[peer].setdefault(request, deque()).append((size, token))
        self._counts[peer] += 1

    def admit(self, most: int) -> list[Token]:
        """Return the jobs that may begin now, at most `most` bytes in all or one job. In flight until `done`."""
        admitted: list[Token] = []
        before = self._total
        while self._turns:
            peer = next(iter(self._turns))
            request, queue = next(iter(self._queues[peer].items()))
            size, token = queue[0]
            if not _fits(self._total - before, size, most):
                break
            if not _fits(self._bytes[peer], size, self.limits.bytes_per_peer):
                del self._turns[peer]
                continue
            if not _fits(self._total, size, self.limits.bytes_total):
                break
            queue.popleft()
            self._queues[peer].move_to_end(request)
            self._turns.move_to_end(peer)
            self._posted[token] = peer, size
            self._count(peer, size)
            self._unqueue(peer, request, 1)
            admitted.append(token)
        return admitted

    def done(self, token: Token) -> None:
        """End a job, so that its bytes are no longer in flight. Does nothing if it is not in flight."""
        if (posted := self._posted.pop(token, None)) is not None:
            peer, size = posted
            self._count(peer, -size)
            self._wake(peer)

    def drop_request(self, request: str, peer: str) -> None:
        """Forget the jobs of a request with one peer that wait. Jobs in flight count until `done`."""
        if peer in self._queues and (queue := self._queues[peer].get(request)) is not None:
            count = len(queue)
            queue.clear()
            self._unqueue(peer, request, count)
            self._wake(peer)

    def tokens(self) -> list[Token]:
        """Return the tokens of all jobs that wait or are in flight."""
        queues = (queue for of_peer in self._queues.values() for queue in of_peer.values())
        return [*self._posted, *(token for queue in queues for _, token in queue)]

    def in_flight(self) -> int:
        """Return the bytes in flight."""
        return self._total

    def _count(self, peer: str, size: int) -> None:
        """Count bytes that are in flight now, or no more."""
        self._total += size
        self._bytes[peer] += size
        if not self._bytes[peer]:
            del self._bytes[peer]

    def _unqueue(self, peer: str, request: str, count: int) -> None:
        """Count out jobs of one request that wait no more, and remove its queue and its peer's if they are empty."""
        self._counts[peer] -= count
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
