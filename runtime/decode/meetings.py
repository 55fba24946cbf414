"""Meetings: prefill engines that are being met, each on a thread of its own, and the requests that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.runtime.decode.engines import Peer, PrefillEngine, PrefillEngines
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.transfers import TransferTable
from kvplan.runtime.errors import DeadlineError, HandshakeError, LimitedError

# A prefill engine's name, the meeting that will tell it, or None for the only one.
WantedPeer = str | Future[Peer] | None
# Meets an engine, and gives up when what it is given says so.
Meet = Callable[[Callable[[], bool]], Peer]
# Whoever names an engine has it met: how many at once, each on a thread.
MEETINGS = 64


@dataclass(frozen=True, slots=True, eq=False)
class WaitingRequest:
    """A request, which engine it wants, and the `meetings` that were under way when it was asked for."""

    transfer: Transfer
    peer: WantedPeer
    meetings: tuple[Future[Peer], ...]

    def engine(self, engines: PrefillEngines) -> PrefillEngine | None:
        """Its engine, None while that may still be met. Raises why it cannot be."""
        if isinstance(self.peer, Future):
            return engines.named(_result(self.peer).name) if self.peer.done() else None
        if self.peer in engines.live or (self.peer is None and engines.live):
            return engines.named(self.peer)
        if not all(meeting.done() for meeting in self.meetings):
            return None
        for meeting in self.meetings:
            _result(meeting)
        return engines.named(self.peer)


class Meetings:
    """What is being met, and which requests wait. Not safe from threads: DecodeWorker has the lock."""

    def __init__(self) -> None:
        self._threads: dict[Hashable, tuple[Future[Peer], threading.Thread]] = {}
        self._waiting: list[WaitingRequest] = []
        self._closed = threading.Event()

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def begin(self, what: Hashable, meet: Meet) -> Future[Peer]:
        """Have `meet` called on a thread; where `what` is being met already, that meeting. Raises LimitedError."""
        self._threads = {key: pair for key, pair in self._threads.items() if not pair[0].done()}
        if what not in self._threads:
            self._threads[what] = self._started(meet)
        return self._threads[what][0]

    def _started(self, meet: Meet) -> tuple[Future[Peer], threading.Thread]:
        if len(self._threads) >= MEETINGS:
            raise LimitedError(f"{MEETINGS} prefill engines are being met: wait for some")
        meeting = Future[Peer]()
        meeting.set_running_or_notify_cancel()
        thread = threading.Thread(target=self._meet, args=(meeting, meet), name="kvplan-meeting", daemon=True)
        thread.start()
        return meeting, thread

    def under_way(self) -> tuple[Future[Peer], ...]:
        return tuple(meeting for meeting, _ in self._threads.values() if not meeting.done())

    def wait(self, request: WaitingRequest) -> None:
        """Keep a request until its engine is met, or cannot be."""
        self._waiting.append(request)

    def step(self, transfers: TransferTable, engines: PrefillEngines, now: float) -> None:
        """Begin the requests whose engine is there, refuse those that it will not come for, or not in time."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if not request.transfer.ended and not _begun(request, transfers, engines, now):
                self._waiting.append(request)

    def refuse(self, transfers: TransferTable, reason: Callable[[str], RequestError]) -> None:
        """Fail all that waits. `reason` makes the error for a request's name."""
        waiting, self._waiting = self._waiting, []
        for transfer in (request.transfer for request in waiting if not request.transfer.ended):
            transfers.refuse(transfer, reason(f"request {transfer.request.id}"))

    def close(self) -> list[threading.Thread]:
        """Give all meetings up; the threads are to be joined by who holds no lock."""
        self._closed.set()
        return [thread for _, thread in self._threads.values() if thread is not threading.current_thread()]

    def _meet(self, meeting: Future[Peer], meet: Meet) -> None:
        try:
            peer = meet(self._closed.is_set)
        except BaseException as error:
            meeting.set_exception(error)
        else:
            meeting.set_result(peer)


def _begun(request: WaitingRequest, transfers: TransferTable, engines: PrefillEngines, now: float) -> bool:
    """Whether a request waits no more: it was begun, or refused."""
    transfer = request.transfer
    try:
        engine = request.engine(engines)
        if engine is None and now <= transfer.deadline:
            return False
        if engine is None:
            raise _late(transfer)
        transfers.begin(transfer, engine)
    except KvplanError as error:
        transfers.refuse(transfer, error)
    return True


def _result(meeting: Future[Peer]) -> Peer:
    """The peer that was met. Raises why it was not."""
    error = meeting.exception()
    if error is None or isinstance(error, KvplanError):
        return meeting.result()
    raise HandshakeError(f"meeting a prefill engine failed: {type(error).__name__}: {error}") from error


def _late(transfer: Transfer) -> DeadlineError:
    text = f"did not end within {transfer.deadline - transfer.began:g} s: its prefill engine is still being met"
    return DeadlineError(f"request {transfer.request.id} {text}")
