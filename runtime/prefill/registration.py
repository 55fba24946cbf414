"""All that a prefill worker has for one registration of its memory: whom it has met, what it writes and compares."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.card import Hello, Refusal, WorkerCard
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.handshake_server import PrefillFace, greet, served
from kvplan.runtime.control.messages import Ask, Claim, Confirmed, Done, Failed, Grant, Held, Leave, Offer, Spent, Want
from kvplan.runtime.control.wire import Wired, pack
from kvplan.runtime.errors import CardError, HandleError, LeaseError, StalePeerError, TransportError, WithdrawnError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.prefill.clients import DecodeClient, DecodeClients
from kvplan.runtime.prefill.lease import LeaseEvent, Leases
from kvplan.runtime.prefill.read_permits import ReadPermits
from kvplan.runtime.prefill.source import OfferedChunk, SourceRequest
from kvplan.runtime.prefill.verify import Comparison, Verifier
from kvplan.runtime.prefill.writes import RequestWrites
from kvplan.runtime.transfer.executor import ExecutorContext, Slice
from kvplan.runtime.transfer.gather import IndexScratch
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits
from kvplan.runtime.transport.base import Transport

MOST_EVENTS = 1 << 14
SILENT = 3


class PrefillRegistration:
    """Decode workers, and what they are told and written, while `pool` is registered. Not safe from threads."""

    def __init__(
        self, pool: Pool, transport: Transport, desk: ControlServer, leases: Leases, lease: float, limits: Limits,
        counters: Counters,
    ) -> None:  # fmt: skip
        transport.register(pool.geometry.regions, pool.geometry.mem_type)
        self.pool, self.metadata, self.stocks = pool, transport.metadata(), dict[str, SourceRequest]()
        self.events: deque[LeaseEvent] = deque(maxlen=MOST_EVENTS)
        self._transport, self._desk, self._leases = transport, desk, leases
        self._lease, self._counters = lease, counters
        self.guests = DecodeClients(pool.worker, pool.geometry, transport)
        self.gate, self._grants = AdmissionQueue[Slice](limits), ReadPermits(limits)
        self._means = ExecutorContext(transport, self.gate, IndexScratch(), limits.slice_bytes)
        self._pushes = RequestWrites(pool, self._means, counters, self.send, leases)
        self._verifier = Verifier(pool)
        self._changed, self._pending = set[str](), set[str]()
        self._acts: dict[type, Callable[[DecodeClient, Any, float], str]] = {
            Claim: self._claim,
            Ask: self._ask,
            Spent: self._spent,
            Want: self._want,
            Done: self._done,
            Leave: self._leave,
        }

    def add(self, stock: SourceRequest) -> None:
        """A request is held from now on."""
        self.stocks[stock.request] = stock
        self._pending.add(stock.request)
        self._changed.add(stock.request)

    def offer(self, request: str, chunk: OfferedChunk) -> None:
        """A chunk of a request is there, or will be after its event. Raises BadRequestError, HandleError."""
        if request not in self.stocks:
            raise HandleError(f"request {request} is not open (any more): open it, and look at released()")
        self.stocks[request].offer(chunk)
        self._pending.add(request)

    def gone(self, request: str, code: str, why: str) -> None:
        """A request is not held any more: who still needs it is told."""
        self.stocks.pop(request, None)
        self._pushes.end(request, code, why)
        for guest in self.guests:
            if request in guest.claims:
                guest.forget(request)
                self.send(guest, Failed(request, code, why))

    def hear(self, identity: bytes, message: object, me: PrefillFace, now: float) -> None:
        """Act upon one message. Nothing that it says can raise."""
        if isinstance(message, CardError):
            self._note(LeaseEvent("malformed", None, None, str(message)))
        elif isinstance(message, Hello):
            self._greet(identity, message, me, now)
        elif (guest := self.guests.get(identity)) is None:
            text = "this connection has not said hello, was silent for three leases, or was replaced"
            self._desk.send(identity, Refusal(StalePeerError.code, text, False, b""))
            self._note(LeaseEvent("stranger", getattr(message, "request", None), None, text))
        else:
            guest.heard = now
            kind = self._acts[type(message)](guest, message, now)
            self._counters.add("notifications", kind=kind)

    def step(self, now: float) -> bool:
        """One round after all messages were heard; whether anything is being written."""
        self._progress()
        self._advance(now)
        for piece in self.gate.admit():
            piece.mover.admitted(piece)
        for one in self._grants.admit():
            if (guest := self.guests.get(one.guest)) is not None:
                self.send(guest, Grant(one.request, one.number))
        self._pushes.step()
        for verdict in self._verifier.verdicts():
            self._judge(verdict, now)
        self._evict(now)
        self.guests.sweep(self._pushes.busy())
        return bool(len(self._pushes))

    def send(self, guest: DecodeClient, message: Any) -> None:
        """Say something; a guest that cannot be told is gone."""
        if not self._desk.send(guest.identity, message):
            self._drop(guest, "its line is broken or full")

    def close(self) -> None:
        """Forget everybody; comparisons end."""
        self._verifier.close()
        for guest in self.guests:
            self._drop(guest, "this worker ends")
        self.guests.sweep(self._pushes.busy())

    def _greet(self, identity: bytes, hello: Hello, me: PrefillFace, now: float) -> None:
        if self.guests.full():
            text = f"prefill worker {self.pool.worker} has {len(self.guests)} connections, the most that it takes"
            self._desk.send(identity, Refusal(LeaseError.code, text, True, hello.nonce))
            return
        answer = greet(hello, me)
        try:
            if isinstance(answer, WorkerCard):
                self._welcome(identity, hello, me, now)
        except KvplanError as error:
            answer = Refusal(error.code, str(error), False, hello.nonce)
        if isinstance(answer, Refusal):
            logs.event(logs.INFO, "peer refused", engine=hello.name, run=hello.run, error=answer.message)
        self._desk.send(identity, answer)

    def _welcome(self, identity: bytes, hello: Hello, me: PrefillFace, now: float) -> None:
        for guest in self.guests.before(hello):
            self._leases.forget(guest.claimant.run, now)
            self._drop(guest, f"run {hello.run} replaces it")
        before = self.guests.get(identity)
        if before is not None:
            self._drop(before, "it says hello again")
        self.guests.add(identity, hello, served(hello, me), now)

    def _claim(self, guest: DecodeClient, said: Claim, now: float) -> str:
        guest.heartbeat = said.heartbeat
        fed, held, lost = set(said.fed), list[tuple[str, int]](), list[tuple[str, str]]()
        for request in said.requests:
            answer = self._held(guest, request, request in fed, said.tables.get(request), now)
            if isinstance(answer, str):
                lost.append((request, answer))
            elif answer is not None:
                held.append((request, answer))
        self.send(guest, Held(said.heartbeat, self._lease, tuple(held), tuple(lost)))
        return "claim"

    def _held(self, guest: DecodeClient, request: str, fed: bool, named: Wired | None, now: float) -> int | str | None:
        """The number of a hold, why there is none, or None where it is not time yet."""
        answer = self._leases.claim(request, guest.claimant, guest.contract, now)
        if isinstance(answer, str) and not (fed and answer.startswith("unknown")):
            guest.forget(request)
            return answer
        if not guest.claim(request, fed):
            return f"too many requests are claimed: {request} is one too many"
        if isinstance(answer, str):
            return None
        self._changed.add(request)
        stock = self.stocks.get(request)
        if stock is not None and not fed and (why := guest.unlike(stock, named)):
            guest.forget(request)
            return why
        if stock is None or not (fed or stock.whole):
            return None
        guest.told.setdefault(request, 0)
        return answer

    def _ask(self, guest: DecodeClient, said: Ask, now: float) -> str:
        return "asked" if self._grants.ask(guest, said) else "unexpected"

    def _spent(self, guest: DecodeClient, said: Spent, now: float) -> str:
        return "spent" if self._grants.spent(guest, said) else "duplicate"

    def _want(self, guest: DecodeClient, said: Want, now: float) -> str:
        stock = self.stocks.get(said.request)
        try:
            if stock is None or said.request not in guest.claims:
                raise LeaseError(f"request {said.request} is wanted, and not held: claim it first")
            self._pushes.want(guest, said, stock)
        except KvplanError as error:
            self.send(guest, Failed(said.request, error.code, str(error)))
            return "unexpected"
        return "wanted"

    def _done(self, guest: DecodeClient, said: Done, now: float) -> str:
        verdict = self._verifier.ask(guest, said, self.stocks.get(said.request))
        return "done" if verdict is None else self._judge(verdict, now)

    def _judge(self, verdict: Comparison, now: float) -> str:
        guest, said = verdict.guest, verdict.done
        if verdict.problem:
            self.send(guest, Confirmed(said.request, said.attempt, verdict.problem, verdict.code))
            return "unlike"
        problem, event = self._leases.done(said.request, said.hold, guest.claimant, guest.contract, now)
        guest.forget(said.request)
        self.events.append(event)
        self.send(guest, Confirmed(said.request, said.attempt, problem, LeaseError.code if problem else ""))
        return event.kind

    def _leave(self, guest: DecodeClient, said: Leave, now: float) -> str:
        event = self._leases.leave(said.request, guest.claimant, now)
        guest.forget(said.request)
        self._grants.leave(guest, said.request)
        self._verifier.leave(guest, said.request)
        for other in self.guests.others(guest) if said.alone else ():
            self._drop(other, "it speaks through another connection now")
        if guest.links is not None:
            self._pushes.leave(guest, said.request)
        self.events.append(event)
        return event.kind

    def _advance(self, now: float) -> None:
        """Tell those who claim a request how much of it is there."""
        for stock in [self.stocks[name] for name in self._pending if name in self.stocks]:
            try:
                if stock.advance():
                    self._changed.add(stock.request)
            except Exception as error:
                text = f"its event failed: {type(error).__name__}: {error}"
                logs.event(logs.WARNING, "request withdrawn", request=stock.request, error=text)
                self._leases.withdraw(stock.request, now)
                self.gone(stock.request, WithdrawnError.code, text)
        self._pending = {name for name in self._pending if name in self.stocks and self.stocks[name].pending}
        changed, self._changed = self._changed, set()
        for guest in self.guests if changed else ():
            for request in [request for request in changed if request in guest.claims]:
                self._tell(guest, request, now)

    def _tell(self, guest: DecodeClient, request: str, now: float) -> None:
        stock, fed = self.stocks.get(request), guest.claims[request]
        if stock is None or (not fed and guest.unlike(stock, None)):
            return
        if (fed or stock.whole) and request not in guest.told:
            # What was claimed before it was held is claimed now.
            self._leases.claim(request, guest.claimant, guest.contract, now)
            guest.told[request] = 0
            self.send(guest, Held(guest.heartbeat, self._lease, ((request, stock.hold),), ()))
        if fed and guest.links is None:
            for offer in _offers(stock, guest.told.get(request, 0)):
                self.send(guest, offer)
                guest.told[request] = offer.number + 1

    def _progress(self) -> None:
        try:
            stray = self._transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", prefill_worker=self.pool.worker, error=error)
            return
        if stray:
            self._note(LeaseEvent("stray", None, None, f"{stray} messages came through the transport"), stray)

    def _evict(self, now: float) -> None:
        for guest in self.guests:
            if now - guest.heard > SILENT * self._lease:
                self._drop(guest, f"it was silent for {now - guest.heard:.0f} s")

    def _drop(self, guest: DecodeClient, why: str) -> None:
        if self.guests.get(guest.identity) is not guest:
            return
        logs.event(logs.INFO, "peer dropped", guest=guest.key, reason=why)
        self._pushes.drop(guest)
        self._grants.drop(guest)
        self.guests.remove(guest)

    def _note(self, event: LeaseEvent, count: int = 1) -> None:
        self.events.append(event)
        self._counters.add("notifications", count, kind=event.kind)


def _offers(stock: SourceRequest, told: int) -> list[Offer]:
    """What of a request has not been told yet."""
    if stock.tokens is None:
        whole = Offer(stock.request, stock.hold, 0, None, None, {}, True)
        return [whole] if stock.whole and not told else []
    return [
        Offer(stock.request, stock.hold, number, one.tokens, one.layers, pack(one.tables), one.last)
        for number, one in enumerate(stock.chunks[told : stock.ready], told)
    ]
