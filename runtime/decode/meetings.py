"""Meetings: prefill engines that are being connected, each on its own thread, and the requests that wait for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.engine_table import EngineTable
from kvplan.runtime.decode.prefill_engine import Peer, PrefillEngine
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import DeadlineError, HandshakeError, LimitedError, TransferError

# A prefill engine's name, the meeting that connects it, or None for the only engine.
WantedPeer = str | Future[Peer] | None
# A function that connects an engine until a time, which it asks for again because other callers may extend it.
Meet = Callable[[Callable[[], float]], Peer]
# Meetings at once, each on a thread: requests may name any number of engines.
MEETINGS = 64
# The end of a meeting that is given up: before any time of a clock.
GIVEN_UP = -1e9


@dataclass(frozen=True, slots=True, eq=False)
class WaitingRequest:
    """A request, the engine that it wants, and the `meetings` that were in progress when it was submitted."""

    transfer: Transfer
    peer: WantedPeer
    meetings: tuple[Future[Peer], ...]

    def engine(self, engines: EngineTable) -> PrefillEngine | None:
        """Return its engine, None while that may still be met. Raises the error of the meeting."""
        if isinstance(self.peer, Future):
            return engines.named(_result(self.peer).name) if self.peer.done() else None
        if self.peer in engines.live or (self.peer is None and engines.live):
            return engines.named(self.peer)
        if not all(meeting.done() for meeting in self.meetings):
            return None
        for meeting in self.meetings:
            _result(meeting)
        return engines.named(self.peer)


class Meeting:
    """A prefill engine that is being connected until `ends`, the thread that does it, and its key `what`."""

    def __init__(self, what: Hashable, ends: float, meet: Meet) -> None:
        self.what, self.ends, self.peer = what, ends, Future[Peer]()
        self.peer.set_running_or_notify_cancel()
        self.thread = threading.Thread(target=self._run, args=(meet,), name="kvplan-meeting", daemon=True)

    def _run(self, meet: Meet) -> None:
        try:
            peer = meet(lambda: self.ends)
        except BaseException as error:
            self.peer.set_exception(error)
        else:
            self.peer.set_result(peer)


class Meetings:
    """The engines that are being met, and the requests that wait. Only its worker's owner calls it."""

    def __init__(self) -> None:
        self._under_way: list[Meeting] = []
        self._waiting = deque[WaitingRequest]()

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    def begin(self, what: Hashable, now: float, ends: float, meet: Meet) -> Future[Peer]:
        """Call `meet` on a thread, or join the meeting of the same `what`, which then lasts until `ends` at least.

        Raises LimitedError.
        """
        self._under_way = [meeting for meeting in self._under_way if not meeting.peer.done()]
        # A meeting whose time is over is about to fail: do not join it.
        joined = (meeting for meeting in self._under_way if meeting.what == what and meeting.ends > now)
        meeting = next(joined, None) or self._started(what, ends, meet)
        meeting.ends = max(meeting.ends, ends)
        return meeting.peer

    def _started(self, what: Hashable, ends: float, meet: Meet) -> Meeting:
        if len(self._under_way) >= MEETINGS:
            raise LimitedError(f"{MEETINGS} prefill engines are being met: wait for some")
        meeting = Meeting(what, ends, meet)
        meeting.thread.start()
        self._under_way.append(meeting)
        return meeting

    def under_way(self) -> tuple[Future[Peer], ...]:
        return tuple(meeting.peer for meeting in self._under_way if not meeting.peer.done())

    def engine_for(self, transfer: Transfer, peer: WantedPeer, engines: EngineTable, most: int) -> PrefillEngine | None:
        """Return the engine of a request; None if it is not met yet: `step` begins the request when it is.

        Raises the error of its meeting, and LimitedError if `most` requests are in progress or wait.
        """
        request = WaitingRequest(transfer, peer, self.under_way())
        running = len(engines.driver.core.loads.running) + len(self)
        if (engine := request.engine(engines)) is not None:
            return engine
        if running >= most:
            raise LimitedError(f"{running} requests are in progress or wait: wait for some")
        self._waiting.append(request)
        return None

    def step(self, engines: EngineTable, now: float) -> None:
        """Begin the requests whose engine is met; fail those whose meeting failed or whose deadline has passed."""
        # Remove one at a time: if a fault of kvplan's own ends one request here, the others still wait.
        for request in tuple(self._waiting):
            over = request.transfer.ended or request.transfer.attempt > 0
            if over or _begun(request, engines, now):
                self._waiting.remove(request)

    def refuse(self, driver: DecodeDriver, reason: Callable[[str], RequestError]) -> None:
        """Fail all requests that wait. `reason` returns the error for a text that names one."""
        waiting, self._waiting = self._waiting, deque()
        for transfer in (request.transfer for request in waiting if not request.transfer.ended):
            driver.fail(transfer, reason(f"request {transfer.request.id}"))

    def close(self) -> list[threading.Thread]:
        """Give all meetings up, and return their threads, to be joined outside of a turn."""
        for meeting in self._under_way:
            meeting.ends = GIVEN_UP
        threads = [meeting.thread for meeting in self._under_way]
        return [thread for thread in threads if thread is not threading.current_thread()]


def _begun(request: WaitingRequest, engines: EngineTable, now: float) -> bool:
    """Begin or fail a request, and return True; return False if it still waits for its engine."""
    transfer, driver = request.transfer, engines.driver
    try:
        engine = request.engine(engines)
        if engine is None and now <= transfer.deadline:
            return False
        if engine is None:
            raise _late(transfer)
        driver.start(transfer, engine)
    except KvplanError as error:
        driver.fail(transfer, error)
    except Exception as error:
        driver.fail(transfer, TransferError(f"request {transfer.request.id}: {type(error).__name__}: {error}"))
        raise
    return True


def _result(meeting: Future[Peer]) -> Peer:
    """Return the peer that was met. Raises KvplanError if it was not, or if the future is not of `connect_soon`."""
    if meeting.cancelled():
        raise HandshakeError("meeting a prefill engine was cancelled: submit with what `connect_soon` returns")
    error = meeting.exception()
    if error is not None and not isinstance(error, KvplanError):
        raise HandshakeError(f"meeting a prefill engine failed: {type(error).__name__}: {error}") from error
    peer = meeting.result()
    if not isinstance(peer, Peer):
        raise HandshakeError(f"no peer is a {type(peer).__name__}: submit with what `connect_soon` returns")
    return peer


def _late(transfer: Transfer) -> DeadlineError:
    text = f"did not end within {transfer.deadline - transfer.began:g} s: its prefill engine is still being met"
    return DeadlineError(f"request {transfer.request.id} {text}")
