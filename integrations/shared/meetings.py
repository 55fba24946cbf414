"""The prefill engines that a decode worker meets: each once while the meeting lasts, and only with a known key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future

from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.errors import KeysError


class PrefillMeetings:
    """The meetings of a decode worker with prefill engines, by any hashable name of an engine."""

    def __init__(self, worker: DecodeWorker) -> None:
        self._worker = worker
        self._meetings: dict[Hashable, Future[Peer]] = {}

    def meeting(self, name: Hashable, begin: Callable[[], Future[Peer]]) -> Future[Peer]:
        """Return the meeting with an engine: the existing one if it lasts, or a new one. Raises what `begin` raises."""
        meeting = self._meetings.get(name)
        if meeting is None or not self._lasts(meeting):
            self._meetings = {name: kept for name, kept in self._meetings.items() if self._lasts(kept)}
            meeting = self._meetings[name] = begin()
        return meeting

    def _lasts(self, meeting: Future[Peer]) -> bool:
        """Whether the worker is meeting an engine, or is still connected to it."""
        if not meeting.done():
            return True
        return meeting.exception() is None and meeting.result() in self._worker.peers()


def trusted(keys: Keys | Plain, key: str, engine: str) -> bytes | None:
    """Return the public key that an engine must have, None without one.

    Raises KeysError for a key of no allowed peer: a request can name any key.
    """
    wanted = key.encode() or None
    if wanted is not None and isinstance(keys, Keys) and wanted not in keys.allowed():
        raise KeysError(f"{engine} has key {key!r}, which is none of a peer's")
    return wanted
