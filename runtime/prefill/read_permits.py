"""Leave to read, where a prefill worker bounds what decode workers read from it at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.messages import Ask, Spent
from kvplan.runtime.prefill.clients import DecodeClient
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits

LARGEST = 1 << 40
MOST = 1 << 17


@dataclass(frozen=True, slots=True)
class ReadPermit:
    """A read that a decode worker asked for: whose, of which request, its number there."""

    key: str
    guest: bytes
    request: str
    number: int


class ReadPermits:
    """What was asked for and what was granted: fair between decode workers, and between the requests of each."""

    def __init__(self, limits: Limits) -> None:
        self._gate = AdmissionQueue[ReadPermit](limits)
        self._granted = Counter[str]()

    def ask(self, guest: DecodeClient, said: Ask) -> bool:
        """Queue a read; False for one that cannot be: of no request that is claimed, of no size, asked for twice."""
        if said.request not in guest.claims or not 0 < said.size <= LARGEST:
            return False
        if self._granted[guest.key] + self._gate.waiting(guest.key) >= MOST:
            return False
        try:
            self._gate.want(
                guest.key, said.request, said.size, ReadPermit(guest.key, guest.identity, said.request, said.number)
            )
        except KvplanError:
            return False
        return True

    def spent(self, guest: DecodeClient, said: Spent) -> bool:
        """A read is over; False where it was not granted."""
        known = self._gate.done(ReadPermit(guest.key, guest.identity, said.request, said.number))
        self._granted[guest.key] -= known
        return known

    def admit(self) -> list[ReadPermit]:
        """The reads that may begin now."""
        found = self._gate.admit()
        self._granted.update(one.key for one in found)
        return found

    def leave(self, guest: DecodeClient, request: str) -> None:
        """A request is given up: what waits of it is not granted any more."""
        self._gate.drop_request(request, guest.key)

    def drop(self, guest: DecodeClient) -> None:
        """A decode worker is gone: what it was granted counts no more."""
        self._gate.drop(guest.key)
        del self._granted[guest.key]

    def in_flight(self) -> int:
        """Bytes that decode workers may be reading now."""
        return self._gate.in_flight()
