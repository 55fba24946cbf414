"""The prefill side: show cards to those who ask, and count by contract who is done with which request."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvplan.runtime import card
from kvplan.runtime.card import Done, EngineCard, Hello, Refusal, WorkerCard
from kvplan.runtime.errors import CardError, DigestError, HandleError, HandshakeError, RegisterError, TransportError
from kvplan.runtime.handshake import Desk, named
from kvplan.runtime.plan import Plan
from kvplan.runtime.register import Pool
from kvplan.runtime.transport import Transport

LOG = logging.getLogger("kvplan.runtime")
REMEMBERED = 1 << 16
PAUSE = 0.0005


@dataclass(frozen=True, slots=True)
class Event:
    """What a notification meant. `kind` is counted, finished, duplicate, unexpected, unknown-plan or malformed."""

    kind: str
    request: str | None = None
    worker: int | None = None
    text: str = ""


def expected(plan: Plan, worker: int) -> frozenset[int]:
    """The decode workers that tell prefill worker `worker` when they are done with a request."""
    return frozenset(number for number in range(len(plan.decode.workers)) if worker in named(plan, number))


@dataclass(slots=True)
class Contract:
    """Who has told of which request, for one prefill worker. A decode worker is never counted twice.

    The last 65,536 finished requests are remembered, so that a late duplicate does not begin a new count.
    """

    plan: Plan
    worker: int
    waiting: dict[str, set[int]] = field(default_factory=dict)
    ended: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def tell(self, done: Done) -> Event:
        """Count one notification."""
        if done.worker not in expected(self.plan, self.worker):
            return Event("unexpected", done.request, done.worker, "the plan has this decode worker tell others only")
        told = self.waiting.setdefault(done.request, set()) if done.request not in self.ended else {done.worker}
        if done.worker in told:
            return Event("duplicate", done.request, done.worker, "counted before")
        told.add(done.worker)
        if told != expected(self.plan, self.worker):
            return Event("counted", done.request, done.worker)
        self._finish(done.request)
        return Event("finished", done.request, done.worker)

    def _finish(self, request: str) -> None:
        del self.waiting[request]
        self.ended[request] = None
        while len(self.ended) > REMEMBERED:
            self.ended.popitem(last=False)


class PrefillWorker:
    """One prefill worker: its memory registered, its card at `address`. It must be polled, or `start`ed.

    `plans` may be several, for unlike decode sides; their prefill side is one. `generation` names this run of the
    engine and is the same for all its workers.
    """

    def __init__(
        self,
        plans: Plan | Iterable[Plan],
        worker: int,
        pool: Pool,
        transport: Transport,
        *,
        bind: str = "tcp://127.0.0.1:*",
        generation: str = "",
    ) -> None:
        every = [plans] if isinstance(plans, Plan) else list(plans)
        if any(plan.prefill.digest != pool.side.digest for plan in every) or pool.worker != worker:
            raise RegisterError(f"the pool is not that of prefill worker {worker} of these plans: call views again")
        self.worker, self.pool, self.generation = worker, pool, generation or uuid.uuid4().hex
        self._shared = bool(generation)
        self._contracts = {plan.digest: Contract(plan, worker) for plan in every}
        self._transport, self._addresses, self._finished = transport, tuple[str, ...](), list[str]()
        self._lock, self._stop = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None
        transport.register(pool.geometry.regions, pool.geometry.mem_type)
        self._metadata = transport.metadata()
        self._desk = Desk(bind)
        self.address = self._desk.address

    def announce(self, addresses: Iterable[str], generation: str | None = None) -> None:
        """Say where all workers of this engine answer, in the plan's order; before that, peers are told to wait."""
        with self._lock:
            self._addresses = tuple(addresses)
            self._shared = self._shared or bool(generation) or len(self._addresses) == 1
            self.generation = generation or self.generation

    def poll(self) -> tuple[Event, ...]:
        """Answer handshakes, progress the transport, count notifications. Never blocks.

        Raises HandleError after `close`.
        """
        with self._lock:
            self._check_open()
            self._desk.answer(self._reply)
            events = tuple(self._event(message) for message in self._messages())
            self._finished += [
                event.request for event in events if event.kind == "finished" and event.request is not None
            ]
            return events

    def finished(self) -> list[str]:
        """Requests that every decode worker of the contract is done with, each once."""
        with self._lock:
            found, self._finished = self._finished, []
            return found

    def start(self) -> None:
        """Poll from a thread of its own until `close`. Raises HandleError after `close`, or where it runs already."""
        with self._lock:
            self._check_open()
            if self._thread is not None:
                raise HandleError(f"prefill worker {self.worker} was started before: start it once")
            self._thread = threading.Thread(target=self._loop, name=f"kvplan-prefill-{self.worker}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop answering and end the transport: readers lose this worker. Once more does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._desk.close()
            self._transport.close()

    def _check_open(self) -> None:
        if self._stop.is_set():
            raise HandleError(f"prefill worker {self.worker} is closed: make a new one")

    def _loop(self) -> None:
        while not self._stop.wait(PAUSE):
            self._round()

    def _round(self) -> None:
        """One poll, whose failure ends neither the thread nor the answers to other peers."""
        try:
            self.poll()
        except Exception:
            if self._stop.is_set():
                return
            LOG.exception("prefill_worker=%d poll failed", self.worker)

    def _messages(self) -> list[bytes]:
        try:
            return [message for _, message in self._transport.notifications()]
        except TransportError as error:
            LOG.warning("prefill_worker=%d progress=%s", self.worker, error)
            return []

    def _event(self, message: bytes) -> Event:
        try:
            done = card.unseal(message, Done)
        except CardError as error:
            return Event("malformed", text=str(error))
        if done.plan not in self._contracts:
            return Event("unknown-plan", done.request, done.worker, f"plan digest {done.plan} is not served here")
        return self._contracts[done.plan].tell(done)

    def _reply(self, hello: Hello) -> EngineCard | WorkerCard | Refusal:
        if hello.plan not in self._contracts:
            served = ", ".join(sorted(self._contracts))
            text = f"plan digest {hello.plan} is not served here, only {served}: compile both sides from one layout"
            return Refusal(DigestError.code, text)
        plan = self._contracts[hello.plan].plan
        if not self._shared and (self._addresses or hello.want == "worker"):
            text = f"worker {self.worker} has no generation yet: give all workers one, or announce it"
            return Refusal(HandshakeError.code, text, again=True)
        if hello.want == "worker":
            return card.describe(self.worker, plan, self.generation, self.pool.geometry, self._metadata)
        if not self._addresses:
            return Refusal(HandshakeError.code, "the engine's workers are not all up", again=True)
        side = plan.prefill
        return EngineCard(plan.model_digest, side.digest, plan.digest, side.key, self._addresses, self.generation)
