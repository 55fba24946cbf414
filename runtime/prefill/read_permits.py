"""Read permits, where a prefill worker bounds what decode workers read from it at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.messages import AskPermit, ReturnPermit
from kvplan.runtime.prefill.clients import DecodeClient
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits

LARGEST = 1 << 40
MOST = 1 << 17


@dataclass(frozen=True, slots=True)
class ReadPermit:
    """A read that a decode worker asked for: whose, of which request, its number there."""

    key: str
    client: bytes
    request: str
    number: int


class ReadPermits:
    """Permits that were asked for and given: fair between decode workers, and between the requests of each."""

    def __init__(self, limits: Limits) -> None:
        self._queue = AdmissionQueue[ReadPermit](limits)
        self._given = Counter[str]()

    def ask(self, client: DecodeClient, asked: AskPermit) -> bool:
        """Queue a read; False for one that cannot be: of no request that is claimed, of no size, asked for twice."""
        if asked.request not in client.claims or not 0 < asked.size <= LARGEST:
            return False
        if self._given[client.key] + self._queue.waiting(client.key) >= MOST:
            return False
        try:
            self._queue.want(client.key, asked.request, asked.size, _permit(client, asked))
        except KvplanError:
            return False
        return True

    def give_back(self, client: DecodeClient, returned: ReturnPermit) -> bool:
        """A read is over; False where it was not permitted."""
        known = self._queue.done(_permit(client, returned))
        self._given[client.key] -= known
        return known

    def admit(self) -> list[ReadPermit]:
        """The reads that may begin now."""
        if permits := self._queue.admit():
            self._given.update(permit.key for permit in permits)
        return permits

    def leave(self, client: DecodeClient, request: str) -> None:
        """A request is given up: what waits of it is not permitted any more."""
        self._queue.drop_request(request, client.key)

    def drop(self, client: DecodeClient) -> None:
        """A decode worker is gone: what it was permitted counts no more."""
        self._queue.drop(client.key)
        del self._given[client.key]

    def in_flight(self) -> int:
        """Bytes that decode workers may be reading now."""
        return self._queue.in_flight()


def _permit(client: DecodeClient, message: AskPermit | ReturnPermit) -> ReadPermit:
    return ReadPermit(client.key, client.identity, message.request, message.number)
