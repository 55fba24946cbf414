"""All that a decode worker has for one registration of its memory: what is written, by whom, what is left behind."""

from __future__ import annotations

from kvplan.plan import planes as names
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.checksum.checksum import EVERY
from kvplan.runtime.control.messages import Sums
from kvplan.runtime.decode.accept import accept
from kvplan.runtime.decode.inbox import DecodeInbox
from kvplan.runtime.decode.outcome import outcome
from kvplan.runtime.decode.parts import PeerProgress
from kvplan.runtime.decode.peer import LocalWorker, PrefillEngine
from kvplan.runtime.decode.peers import PrefillEngines
from kvplan.runtime.decode.quarantine import BlockLedger
from kvplan.runtime.decode.summing import ChecksumQueue
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.transfers import TransferTable
from kvplan.runtime.errors import LimitedError, QuarantinedError, RegisterError, TransferError, TransportError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.executor import ExecutorContext, Slice
from kvplan.runtime.transfer.gather import IndexScratch, gather
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits
from kvplan.runtime.transport.base import Transport


class DecodeRegistration:
    """Requests and engines of one decode worker while `pool` is registered. Not safe from threads."""

    def __init__(self, pool: Pool, transport: Transport, limits: Limits, counters: Counters) -> None:
        if not pool.writable:
            raise RegisterError("the memory of a decode worker is read-only: pass writable arrays")
        transport.register(pool.geometry.regions, pool.geometry.mem_type)
        self.pool, self.limits, self.counters = pool, limits, counters
        self.ledger, self.gate, self._scratch = (
            BlockLedger(pool.side, pool.blocks),
            AdmissionQueue[Slice](limits),
            IndexScratch(),
        )
        means = ExecutorContext(transport, self.gate, self._scratch, limits.slice_bytes)
        self.flight = TransferTable(self.ledger, means, counters, self._sums)
        self.sessions = PrefillEngines(LocalWorker(pool.worker, pool.geometry, transport), self.flight)
        self._hearing = DecodeInbox(self.flight, pool.worker, counters, self._refused)
        self._transport, self._summing = transport, ChecksumQueue(pool)

    @property
    def in_use(self) -> str:
        """What a suspension would have to wait for, empty if nothing."""
        running, kept = len(self.flight.running), self.ledger.quarantined()
        return f"{running} requests are under way, blocks {kept} are in quarantine" if running or kept else ""

    def quarantined_bytes(self) -> int:
        """Bytes of the blocks that may still be written: of each arena, as its largest group has them."""
        return sum(size * self.ledger.count(arena) for arena, size in block_bytes(self.pool).items())

    def begin(self, transfer: Transfer, peer: str | None) -> None:
        """Start a transfer, or end it with what is wrong with its request."""
        try:
            session = self._accept(transfer, peer)
        except KvplanError as error:
            self.refuse(transfer, error)
            return
        session.used = transfer.began
        self.flight.start(transfer, session)

    def refuse(self, transfer: Transfer, error: KvplanError) -> None:
        """End a transfer of which nothing has moved."""
        transfer.error, transfer.state = error, outcome(error).state
        self.counters.add("failures", reason=error.code)
        self.counters.add("requests", outcome=transfer.state)

    def predict(self, request: Request, peer: str | None) -> dict[int, int]:
        """Requests that would be posted, by prefill worker. Raises what is wrong with the request."""
        session = self.sessions.named(peer)
        _, wanted = accept(session, self.pool, request, fed=False)
        found = dict[int, int]()
        for worker, member in sorted(session.members.items()):
            runs = wanted.of(session.plan.prefill.workers[worker].shard) if member.reads else {}
            link = member.links.of(None) if runs else None
            pieces = slices.cut(link, runs, self.limits.slice_bytes) if link else []
            found[worker] = sum(gather(link, piece, self._scratch).requests for piece in pieces if link)
        return found

    def poll(self, now: float, idle: float) -> bool:
        """One round; whether anything is under way."""
        self._progress()
        for session in (*self.sessions.live.values(), *self.sessions.retired):
            self._listen(session, now)
        for piece in self.gate.admit():
            piece.mover.admitted(piece)
        for transfer, session in list(self.flight.running.values()):
            self.flight.step(transfer, session, now)
        self._beats(now)
        self.sessions.evict(idle, now)
        self.sweep(now)
        return bool(self.flight.running)

    def sweep(self, now: float) -> None:
        """Free what nothing writes any more, and forget who nothing is under way from."""
        self.flight.orphans.sweep(now)
        self.sessions.sweep()

    def leave(self, why: str, now: float) -> None:
        """Drop every engine; `why` follows the worker's name in what the transfers that fail say."""
        text = f"decode worker {self.pool.worker} {why}"
        for session in list(self.sessions.live.values()):
            self.sessions.drop(session, lambda who: TransferError(f"{who}: {text}"))
        self._summing.close()
        self.sweep(now)

    def _accept(self, transfer: Transfer, peer: str | None) -> PrefillEngine:
        session = self.sessions.named(peer)
        transfer.request, transfer.demand = accept(session, self.pool, transfer.request, fed=transfer.fed)
        name = transfer.request.id
        if name in self.flight.running:
            raise BadRequestError(f"request {name} is already under way: use one id per request")
        if self.flight.orphans.awaits(name):
            raise QuarantinedError(f"request {name} failed, and a worker may still write it: ask again later")
        if len(self.flight.running) >= self.limits.requests:
            text = f"{self.limits.requests} requests are under way"
            raise LimitedError(f"{text}: wait for some, or raise Limits.requests")
        self.ledger.take(transfer.demand.written)
        transfer.written = transfer.demand.written
        return session

    def _listen(self, session: PrefillEngine, now: float) -> None:
        for member in session.members.values():
            for message in member.line.receive():
                self._hearing.hear(session, member, message, now)
        error = session.broken() if self.sessions.live.get(session.name) is session else None
        if error is not None:
            self._refused(session, error)

    def _refused(self, session: PrefillEngine, error: KvplanError) -> None:
        if self.sessions.live.get(session.name) is session:
            logs.event(logs.WARNING, "peer lost", engine=session.name, run=session.engine.run, error=error)
            self.sessions.drop(session, lambda who: TransferError(f"{who}: {error}"))

    def _beats(self, now: float) -> None:
        for session in self.sessions.live.values():
            if session.heartbeat_due(now):
                for member in session.members.values():
                    session.claim(member, *self.flight.claims(session, member))

    def _progress(self) -> None:
        try:
            stray = self._transport.progress()
        except TransportError as error:
            logs.event(logs.WARNING, "progress failed", decode_worker=self.pool.worker, error=error)
            return
        if stray:
            self.counters.add("notifications", stray, kind="stray")

    def _sums(self, transfer: Transfer, session: PrefillEngine, part: PeerProgress) -> Sums | None:
        return self._summing.of(part, session.plan, transfer.request, transfer.sample or EVERY)


def block_bytes(pool: Pool) -> dict[int, int]:
    """Bytes of one logical block (or slot) by arena, that of its largest group."""
    groups = {group.name: group for group in pool.side.groups}
    sizes: dict[str, int] = {}
    for plane in names.planes(pool.side.workers[pool.worker]):
        sizes[plane.group] = sizes.get(plane.group, 0) + plane.stride * groups[plane.group].ratio
    found: dict[int, int] = {}
    for name, size in sizes.items():
        found[groups[name].arena] = max(size, found.get(groups[name].arena, 0))
    return found
