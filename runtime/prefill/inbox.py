"""Prefill inbox: what a prefill worker makes of the messages of decode workers, and what it announces to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.runtime.checksum.background import ChecksumThread
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import Hello, Refusal, WorkerCard
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.handshake_server import PrefillFace, answer_hello, served_plan
from kvplan.runtime.errors import CardError, HandleError, LeaseError, StalePeerError, WithdrawnError, cause_text
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.prefill.clients import ClientClaim, DecodeClient, DecodeClients
from kvplan.runtime.prefill.lease import LeaseEvent, Leases
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.prefill.source import OfferedChunk, SourceRequest
from kvplan.runtime.prefill.verify import Comparison, compare
from kvplan.runtime.prefill.writes import RequestWrites
from kvplan.runtime.transfer.executor import ExecutorContext
from kvplan.runtime.transfer.limits import Limits

# Requests, and how much of each its events say is computed, or how they failed.
Completed = list[tuple[SourceRequest, int | BaseException]]
MOST_EVENTS = 1 << 14
# Leases for which a decode worker may be silent.
SILENT = 3
# Seconds of silence after which who was lent a buffer is spoken to, and between two such words.
PROBE = 1.0
# How often a lease that this side renews itself is renewed while it lasts.
RENEWALS = 6


class PrefillInbox:
    """The decode workers that were met, what of each request is there, and who was told what of it.

    Its worker's owner alone calls it. `lease` is in seconds.
    """

    def __init__(
        self,
        pool: Pool,
        context: ExecutorContext,
        server: ControlServer,
        leases: Leases,
        lease: float,
        limits: Limits,
        counters: Counters,
    ) -> None:
        self.clients = DecodeClients(pool, context.transport, limits.requests, self.send, self.say, context.stage)
        self.sources: dict[str, SourceRequest] = {}
        self.events: deque[LeaseEvent] = deque(maxlen=MOST_EVENTS)
        self.writes = RequestWrites(pool, context, counters, self.send, leases)
        self.packs = PagePacks(pool, context.stage, context.transport, self.send)
        self._pool, self._server, self._leases, self._lease, self._counters = pool, server, leases, lease, counters
        self._comparisons = ChecksumThread[tuple[DecodeClient, str], Comparison]()
        self._most_comparisons = limits.requests
        self._renewed = self._probed = float("-inf")
        # In the order in which something became known of them.
        self._pending, self._changed = dict[str, None](), dict[str, None]()
        self._acts: dict[type, Callable[[DecodeClient, Any, float], MessageKind]] = {
            wire.Claim: self._claim,
            wire.AskBuffer: self._ask_buffer,
            wire.ReturnBuffer: self._return_buffer,
            wire.Lent: self._lent,
            wire.WriteRequest: self._write,
            wire.Done: self._done,
            wire.Leave: self._leave,
            wire.Bye: self._bye,
        }

    @property
    def unannounced(self) -> tuple[str, ...]:
        """Requests whose events are waited for, or whose readers are still to be told that something is there."""
        return tuple({**self._pending, **self._changed})

    @property
    def comparing(self) -> int:
        """How many requests wait until their checksums are compared."""
        return len(self._comparisons)

    def add(self, source: SourceRequest) -> None:
        """A request is pinned from now on."""
        self.sources[source.request] = source
        self._pending[source.request] = None
        self._changed[source.request] = None

    def offer(self, request: str, chunk: OfferedChunk) -> None:
        """A chunk of a request is there, or will be after its event. Raises BadRequestError, HandleError."""
        if request not in self.sources:
            raise HandleError(f"request {request} is not open (any more): open it, and look at released()")
        self.sources[request].offer(chunk)
        self._pending[request] = None

    def end(self, request: str, error: KvplanError) -> None:
        """A request is not kept any more: who still needs it is told."""
        self.sources.pop(request, None)
        self.writes.end(request, error)
        self.packs.end(request)
        for client in self.clients:
            if request in client.claims:
                client.forget(request)
                self.send(client, wire.Failed(request, error.code, str(error)))

    def hear(self, identity: bytes, message: Any, face: Callable[[], PrefillFace], now: float) -> None:
        """Act upon one message; who says hello is shown `face`. Nothing that it says can raise."""
        if isinstance(message, CardError):
            self.note(LeaseEvent(MessageKind.MALFORMED, text=str(message)))
        elif isinstance(message, Hello):
            self._server.send(identity, self._greet(identity, message, face(), now))
        elif (client := self.clients.get(identity)) is None and isinstance(message, wire.Bye):
            return
        elif client is None:
            if isinstance(message, wire.Leave):
                self._answer_stranger(identity, message.request)
            text = "this connection has not said hello, was silent for three leases, or was replaced"
            self._server.send(identity, Refusal(StalePeerError.code, text, False, b""))
            self.note(LeaseEvent(MessageKind.STRANGER, getattr(message, "request", None), text=text))
        else:
            client.heard = now
            self._counters.add("messages", kind=self._act(client, message, now))

    def _answer_stranger(self, identity: bytes, request: str) -> None:
        """Whoever it is: what nobody writes, and nobody may want written, is not written to it, either."""
        stopped = self.writes.stopped(request)
        if stopped is not None and not any(request in client.claims for client in self.clients):
            self._server.send(identity, stopped)

    def _act(self, client: DecodeClient, message: Any, now: float) -> MessageKind:
        """What becomes of a message. Numbers that nothing foresaw end their sender's connection, and nobody else's."""
        try:
            return self._acts[type(message)](client, message, now)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            text = f"a {type(message).__name__} cannot be acted upon: {type(error).__name__}: {error}"
            self.note(LeaseEvent(MessageKind.MALFORMED, text=text))
            self._drop(client, text)
            return MessageKind.MALFORMED

    @property
    def busy(self) -> bool:
        """Whether anything is under way: an event that is waited for, a claim, a write or a comparison."""
        claimed = any(client.claims or client.untold for client in self.clients)
        return bool(self._pending or claimed or len(self.writes) or len(self.packs) or len(self._comparisons))

    def waiting(self) -> list[SourceRequest]:
        """The requests whose events are to be asked: without a lock, as they are the caller's code."""
        return [self.sources[name] for name in self._pending if name in self.sources]

    def step(self, now: float, completed: Completed) -> None:
        """One round: announce what is there, write, answer those whose checksums were compared."""
        self._advance(now, completed)
        self._announce(now)
        self.writes.step()
        self.packs.step()
        self._probe(now)
        self._keep_compared(now)
        for comparison in self._comparisons.take_all():
            self._judge(comparison, now)
        for client in self.clients:
            if now - client.heard > SILENT * self._lease:
                self._drop(client, f"it was silent for {now - client.heard:.0f} s")
        self.clients.sweep(self.writes.busy())

    def drop(self, engine: str, dead: bool) -> bool:
        """Forget the decode workers of an engine; False where there are none, and nothing is written to any.

        Where they are `dead`, what is being written to them is not waited for.
        """
        clients = [client for client in self.clients if client.name == engine]
        for client in clients:
            self._drop(client, "its engine was dropped")
        written = self.writes.bury(engine) if dead else self.writes.to(engine)
        self.writes.step()
        return bool(clients or written)

    def send(self, client: DecodeClient, message: msgspec.Struct) -> None:
        """Have `say` say it; a client that cannot be told is gone. What no message can hold ends its request."""
        if self.clients.get(client.identity) is not client:
            return
        try:
            told = self._server.send(client.identity, message)
        except CardError as error:
            logs.event(logs.WARNING, "message too large", client=client.key, error=error)
            self._give_up(client, message, error)
            return
        if not told:
            self._drop(client, "its line is broken, or has been full for long")

    def say(self) -> None:
        """Say what was sent in this round, to each client in one message."""
        for identity in self._server.flush():
            if (client := self.clients.get(identity)) is not None:
                self._drop(client, "its line is broken")

    def note(self, event: LeaseEvent, count: int = 1) -> None:
        """Something came that is no step of the protocol."""
        self.events.append(event)
        self._counters.add("messages", count, kind=event.kind)

    def close(self) -> None:
        """Forget everybody; comparisons end."""
        self._comparisons.close()
        for client in self.clients:
            self._drop(client, "this worker ends")
        self.clients.sweep(self.writes.busy())

    def _give_up(self, client: DecodeClient, message: msgspec.Struct, error: CardError) -> None:
        if not isinstance(message, wire.Offer | wire.AskBuffer):
            self._drop(client, "it asks for more than a message can hold")
            return
        client.forget(message.request)
        self.send(client, wire.Failed(message.request, error.code, str(error)))

    def _greet(self, identity: bytes, hello: Hello, face: PrefillFace, now: float) -> msgspec.Struct:
        if self.clients.full():
            text = f"prefill worker {self._pool.worker} has {len(self.clients)} connections, the most that it takes"
            return Refusal(LeaseError.code, text, True, hello.nonce)
        answer = answer_hello(hello, face)
        if isinstance(answer, WorkerCard):
            try:
                answer = self.packs.serve(self._welcome(identity, hello, face, now), answer)
            except KvplanError as error:
                if (client := self.clients.get(identity)) is not None:
                    self._drop(client, "nothing can be packed for it")
                answer = Refusal(error.code, str(error), False, hello.nonce)
        if isinstance(answer, Refusal):
            logs.event(logs.INFO, "peer refused", engine=hello.name, run=hello.run, error=answer.message)
        return answer

    def _welcome(self, identity: bytes, hello: Hello, face: PrefillFace, now: float) -> DecodeClient:
        for client in self.clients.replaced_by(hello):
            self._leases.forget(client.claimant.run, now)
            self._drop(client, f"run {hello.run} replaces it")
        before = self.clients.get(identity)
        if before is not None:
            self._drop(before, "it says hello again")
        return self.clients.add(identity, hello, served_plan(hello, face), now)

    def _claim(self, client: DecodeClient, claim: wire.Claim, now: float) -> MessageKind:
        client.heartbeat, streamed = claim.heartbeat, set(claim.streamed)
        answers = (self._answer(client, request, request in streamed, claim, now) for request in claim.requests)
        self._say_answers(client, *answers)
        return MessageKind.CLAIM

    def _answer(
        self, client: DecodeClient, request: str, streamed: bool, said: wire.Claim, now: float
    ) -> wire.ClaimAnswer:
        """What becomes of a claim. One of a request that was never held is remembered: it may be held yet."""
        answer = self._leases.claim(request, client.claimant, client.contract, now)
        if isinstance(answer, wire.Lost) and answer.reason is not wire.LossReason.UNKNOWN:
            client.forget(request)
            return answer
        claim = client.claim(request, streamed, said.tables.get(request), said.tokens.get(request))
        if claim is None:
            text = f"too many requests are claimed: {request} is one too many"
            return wire.Lost(request, wire.LossReason.TOO_MANY, text)
        source = self.sources.get(request)
        if isinstance(answer, wire.Lost) or source is None:
            claim.wait()
            return wire.NotYet(request, held=False)
        self._changed[request] = None
        if claim.early:
            return wire.NotYet(request)
        if (unfit := self._unfit(client, claim, source)) is not None:
            return unfit
        if not (streamed or source.whole):
            return wire.NotYet(request)
        claim.announced = claim.announced or 0
        return answer

    def _ask_buffer(self, client: DecodeClient, asked: wire.AskBuffer, now: float) -> MessageKind:
        begun = self._begin(client, asked.request, lambda _: self.packs.want(client, asked))
        return MessageKind.BUFFER_ASKED if begun else MessageKind.UNEXPECTED

    def _return_buffer(self, client: DecodeClient, returned: wire.ReturnBuffer, now: float) -> MessageKind:
        known = self.packs.give_back(client, returned)
        return MessageKind.BUFFER_RETURNED if known else MessageKind.DUPLICATE

    def _lent(self, client: DecodeClient, lent: wire.Lent, now: float) -> MessageKind:
        known = client.push is not None and client.push.stage.lent(lent.request, lent.number, lent.address)
        return MessageKind.LENT if known else MessageKind.DUPLICATE

    def _write(self, client: DecodeClient, asked: wire.WriteRequest, now: float) -> MessageKind:
        if client.push is not None:
            client.push.stage.lends = asked.lends
        begun = self._begin(client, asked.request, lambda source: self._begin_write(client, asked, source))
        return MessageKind.WANTED if begun else MessageKind.UNEXPECTED

    def _begin_write(self, client: DecodeClient, asked: wire.WriteRequest, source: SourceRequest) -> None:
        self.clients.reach(client)
        self.writes.want(client, asked, source)

    def _begin(self, client: DecodeClient, request: str, want: Callable[[SourceRequest], None]) -> bool:
        """Have what is wanted of a request begun, or tell why it is not: only what is held and claimed moves."""
        source = self.sources.get(request)
        try:
            if source is None or request not in client.claims:
                raise LeaseError(f"request {request} is wanted, and not held: claim it first")
            want(source)
        except KvplanError as error:
            self.send(client, wire.Failed(request, error.code, str(error)))
            return False
        return True

    def _done(self, client: DecodeClient, done: wire.Done, now: float) -> MessageKind:
        """Confirm it at once, or when its checksums were compared."""
        if not done.sums and done.sample is None:
            return self._judge(Comparison(client, done), now)
        key, source = (client, done.request), self.sources.get(done.request)
        if key in self._comparisons or len(self._comparisons) >= self._most_comparisons:
            text = "too many checksums are being compared: ask again"
            return self._judge(Comparison(client, done, BadRequestError(text)), now)
        named = {} if source is None else source.named_tables()
        self._comparisons.start(key, partial(compare, self._pool, client, done, named))
        return MessageKind.DONE

    def _probe(self, now: float) -> None:
        """Speak to silent readers that were lent buffers: a connection that is gone is found by speaking through it.

        Others wait for these buffers, and would until it had been silent for so long that it is given up.
        """
        if now - self._probed < PROBE:
            return
        self._probed = now
        for client in self.packs.borrowers():
            if now - client.heard >= PROBE:
                self._say_answers(client)

    def _keep_compared(self, now: float) -> None:
        """Renew the claims of requests whose checksums wait to be compared: who said Done claims nothing any more."""
        if now - self._renewed < self._lease / RENEWALS:
            return
        self._renewed = now
        for client, request in self._comparisons:
            if self.clients.get(client.identity) is client:
                self._leases.claim(request, client.claimant, client.contract, now)

    def _judge(self, comparison: Comparison, now: float) -> MessageKind:
        client, done, error = comparison.client, comparison.done, comparison.error
        if error is not None:
            self.send(client, wire.Failed(done.request, error.code, str(error), done.attempt))
            return MessageKind.UNLIKE
        lasted, event = self._leases.done(done.request, done.pin, client.claimant, client.contract, now)
        client.forget(done.request)
        self.events.append(event)
        lost = wire.Failed(done.request, LeaseError.code, event.text, done.attempt)
        self.send(client, wire.Confirmed(done.request, done.attempt) if lasted else lost)
        return event.kind

    def _leave(self, client: DecodeClient, leave: wire.Leave, now: float) -> MessageKind:
        event = self._leases.leave(leave.request, client.claimant, now)
        client.forget(leave.request)
        self.packs.leave(client, leave.request)
        self._comparisons.drop((client, leave.request))
        for other in self.clients.others(client) if leave.alone else ():
            self._drop(other, "it speaks through another connection now")
        # Also who pulls now: it may have been written to by the connection before.
        self.writes.leave(client, leave.request)
        self.events.append(event)
        return event.kind

    def _bye(self, client: DecodeClient, bye: wire.Bye, now: float) -> MessageKind:
        self._drop(client, "it said goodbye")
        return MessageKind.LEFT

    def _advance(self, now: float, completed: Completed) -> None:
        """Take what events have said of requests that are still there; one whose event failed is withdrawn."""
        for source, count in completed:
            if self.sources.get(source.request) is not source:
                continue
            if isinstance(count, BaseException):
                text = f"its event failed: {cause_text(count)}"
                logs.event(logs.WARNING, "request withdrawn", request=source.request, error=text)
                self._leases.withdraw(source.request, now)
                self.end(source.request, WithdrawnError(text))
            elif source.advance(count):
                self._changed[source.request] = None
        pending = (name for name in self._pending if name in self.sources and self.sources[name].pending)
        self._pending = dict.fromkeys(pending)

    def _announce(self, now: float) -> None:
        """Tell those who claim a request how much of it is there."""
        changed, self._changed = self._changed, {}
        for client in self.clients:
            untold, client.untold = {**client.untold, **changed}, {}
            for request in [request for request in untold if request in client.claims]:
                self._tell(client, request, now)

    def _tell(self, client: DecodeClient, request: str, now: float) -> None:
        source, claim = self.sources.get(request), client.claims[request]
        if source is None:
            return
        if self._server.behind(client.identity):
            client.untold[request] = None
            return
        if claim.early:
            self._say_answers(client, wire.NotYet(request))
            return
        if (unfit := self._unfit(client, claim, source)) is not None:
            self._say_answers(client, unfit)
            return
        if claim.announced is None and (claim.streamed or source.whole):
            # What was claimed before it was held is claimed now.
            self._leases.claim(request, client.claimant, client.contract, now)
            claim.announced = 0
            self._say_answers(client, wire.Claimed(request, source.pin))
        if claim.streamed and client.push is None:
            self._say_offers(client, claim, source)

    def _unfit(self, client: DecodeClient, claim: ClientClaim, source: SourceRequest) -> wire.Lost | None:
        """The refusal of a claim to read a request whole that has other blocks than decode was told of, or gaps."""
        # Blocks of a fed request are known when it is whole; one that is read in chunks is looked at chunk by chunk.
        if claim.streamed or not (source.tokens is None or source.whole):
            return None
        unlike = claim.unlike(source)
        why = unlike or claim.untiled(source, client.plan, self._pool.worker)
        if not why:
            return None
        client.forget(source.request)
        return wire.Lost(source.request, wire.LossReason.UNLIKE if unlike else wire.LossReason.UNTILED, why)

    def _say_answers(self, client: DecodeClient, *answers: wire.ClaimAnswer) -> None:
        self.send(client, wire.ClaimAnswers(client.heartbeat, self._lease, answers, not self.packs.stuck))

    def _say_offers(self, client: DecodeClient, claim: ClientClaim, source: SourceRequest) -> None:
        """As many as the line takes now; the others when it has room."""
        for offer in _offers(source, claim.announced or 0):
            if self._server.behind(client.identity):
                client.untold[source.request] = None
                return
            claim.announced = offer.number + 1
            self.send(client, offer)
            if source.request not in client.claims:
                return

    def _drop(self, client: DecodeClient, why: str) -> None:
        if self.clients.get(client.identity) is not client:
            return
        logs.event(logs.INFO, "peer dropped", client=client.key, reason=why)
        self.writes.drop(client)
        self.packs.drop(client)
        self.clients.remove(client)
        self._server.forget(client.identity)


def ask_events(sources: Iterable[SourceRequest]) -> Completed:
    """What the events of these requests say. They are the caller's code: not within a turn."""
    return [(source, _asked(source)) for source in sources]


def _asked(source: SourceRequest) -> int | BaseException:
    try:
        return source.completed()
    except BaseException as error:  # An event may follow a task that was cancelled.
        return error


def _offers(source: SourceRequest, announced: int) -> Iterator[wire.Offer]:
    """What of a request has not been announced yet."""
    name, pin, only = source.request, source.pin, source.names_all
    if source.tokens is None:
        if source.whole and not announced:
            yield wire.Offer(name, pin, 0, None, None, wire.pack(source.tables or {}), True, only)
        return
    for number, chunk in enumerate(source.chunks[announced : source.ready], announced):
        yield wire.Offer(name, pin, number, chunk.tokens, chunk.layers, wire.pack(chunk.tables), chunk.last, only)
