"""The requests of a decode worker that are under way: claimed, moved, told, kept, or ended with an error."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kvplan.plan.errors import RequestError
from kvplan.runtime.control.messages import Ask, Done, Leave, Spent, Sums, ToPrefill, Want
from kvplan.runtime.control.wire import pack
from kvplan.runtime.decode.orphans import Orphan, Orphans
from kvplan.runtime.decode.outcome import outcome
from kvplan.runtime.decode.parts import PeerProgress
from kvplan.runtime.decode.peer import PrefillConnection, PrefillEngine
from kvplan.runtime.decode.quarantine import BlockLedger
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.errors import DeadlineError, LeaseError, PeerLostError, TransferError, cause_text
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.transfer.executor import ExecutorContext, TransferExecutor
from kvplan.runtime.transfer.slices import size


class TransferTable:
    """All transfers of one decode worker. Not safe from threads: DecodeWorker has the lock.

    `sums` gives the checksums of what came from one prefill worker, None while they are not known yet.
    """

    def __init__(
        self,
        ledger: BlockLedger,
        means: ExecutorContext,
        counters: Counters,
        sums: Callable[[Transfer, PrefillEngine, PeerProgress], Sums | None],
    ) -> None:
        self.orphans = Orphans(ledger, means.transport.lost)
        self.running: dict[str, tuple[Transfer, PrefillEngine]] = {}
        self._ledger, self._means, self._counters, self._sums = ledger, means, counters, sums
        self._ended: list[Transfer] = []
        self._attempts = itertools.count(1)

    def start(self, transfer: Transfer, session: PrefillEngine) -> None:
        """Claim a transfer whose blocks are taken."""
        name, transfer.attempt = transfer.request.id, next(self._attempts)
        self.running[name] = transfer, session
        for member in session.members.values():
            runs = transfer.demand.of(session.plan.prefill.workers[member.worker].shard) if member.reads else {}
            expected = size(member.links.of(None), runs) if runs and not session.push else 0
            transfer.parts.append(PeerProgress(member, expected))
            fed = transfer.fed or session.push
            tables = {} if fed else {name: pack(transfer.request.prefill)}
            transfer.parts[-1].heartbeat = session.claim(member, (name,), (name,) if fed else (), tables)

    def held(self, transfer: Transfer, session: PrefillEngine, part: PeerProgress, hold: int) -> None:
        """A prefill worker says that it holds the request."""
        if part.phase != "claiming":
            if part.hold != hold and part.phase != "kept":
                text = f"prefill worker {part.member.worker} let hold {part.hold} of it go and holds it anew as {hold}"
                self.fail(transfer, LeaseError(f"request {transfer.request.id}: {text}: ask again"))
            return
        part.hold, part.phase = hold, "moving"
        try:
            self._begin(transfer, session, part)
        except Exception as error:
            self.broken(transfer, part, error)

    def step(self, transfer: Transfer, session: PrefillEngine, now: float) -> None:
        """One step of a transfer."""
        for part in transfer.parts:
            if part.mover is not None and part.phase == "moving" and not transfer.ended:
                self._follow(transfer, part, part.mover)
        if not transfer.ended and all(part.past("moved") for part in transfer.parts):
            self._tell(transfer, session)
        if not transfer.ended and all(part.phase == "kept" for part in transfer.parts):
            self._finish(transfer, now)
        elif not transfer.ended and now > transfer.deadline:
            waiting = {part.member.worker: part.phase for part in transfer.parts if part.phase != "kept"}
            text = f"request {transfer.request.id} did not end within {transfer.deadline - transfer.began:g} s"
            self.fail(transfer, DeadlineError(f"{text}: {_waits(waiting)}"))

    def broken(self, transfer: Transfer, part: PeerProgress, cause: Exception) -> None:
        """Something went wrong between here and one prefill worker."""
        if isinstance(cause, RequestError):
            self.fail(transfer, cause)
            return
        error = TransferError(
            f"request {transfer.request.id}, prefill worker {part.member.worker}: {cause_text(cause)}"
        )
        error.__cause__ = cause
        self.fail(transfer, error)

    def fail(self, transfer: Transfer, error: RequestError) -> None:
        """End a transfer with `error`; its blocks are free only when nothing can write them any more."""
        if transfer.ended:
            return
        error.untrusted = {group: tuple(ids.tolist()) for group, ids in transfer.written.items()}
        transfer.error = error
        pieces = [piece for part in transfer.parts if part.mover is not None for piece in part.mover.stop()]
        writers = [part.member for part in transfer.parts if part.wanted]
        heard = [part.member for part in transfer.parts if part.member.line.send(Leave(transfer.request.id))]
        unsaid = [member for member in writers if member not in heard]
        self.orphans.add(Orphan(transfer.request.id, transfer.written, pieces, writers, unsaid))
        self._counters.add("failures", reason=error.code)
        self._end(transfer, outcome(error).state)

    def claims(self, session: PrefillEngine, member: PrefillConnection) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Requests that a worker must go on holding, and those of them that need not be whole.

        Not those that it was told are over: a claim after that is taken for a new read.
        """
        mine = [transfer for transfer, one in self.running.values() if one is session]
        open_ = [one for one in mine if any(part.member is member and not part.past("told") for part in one.parts)]
        names = tuple(one.request.id for one in open_)
        return names, names if session.push else tuple(one.request.id for one in open_ if one.fed)

    def stop(self, session: PrefillEngine, reason: Callable[[str], RequestError]) -> None:
        """Fail all transfers of a session. `reason` makes the error for a request's name."""
        for transfer, mine in list(self.running.values()):
            if mine is session:
                self.fail(transfer, reason(f"request {transfer.request.id}"))

    def settled(self) -> list[Transfer]:
        """The transfers that have ended since the last call."""
        found, self._ended = self._ended, []
        return found

    def mover(self, transfer: Transfer, session: PrefillEngine, part: PeerProgress) -> TransferExecutor:
        """What moves a part's bytes, made when first asked for."""
        if part.mover is None:
            name, line = transfer.request.id, part.member.line

            def ask(number: int, size: int) -> None:
                _send(line.send, Ask(name, number, size))

            def spent(number: int) -> None:
                line.send(Spent(name, number))

            def fail(error: Exception) -> None:
                self.broken(transfer, part, error)

            leave = (ask, spent) if session.engine.admission else ()
            part.mover = TransferExecutor(name, part.member.peer, self._means, fail, *leave)
        return part.mover

    def _begin(self, transfer: Transfer, session: PrefillEngine, part: PeerProgress) -> None:
        if not part.member.reads or not transfer.demand.runs:
            part.phase = "moved"
        elif session.push:
            part.wanted = True
            _send(part.member.line.send, _want(transfer))
        elif not transfer.fed:
            mover = self.mover(transfer, session, part)
            shard = session.plan.prefill.workers[part.member.worker].shard
            mover.feed(part.member.links.of(None), transfer.demand.of(shard))
            mover.fed = True

    def _follow(self, transfer: Transfer, part: PeerProgress, mover: TransferExecutor) -> None:
        mover.step()
        if mover.done and not transfer.ended:
            part.phase = "moved"
            self._counters.add("posted", mover.requests)
            self._counters.add("spans", mover.spans)

    def _tell(self, transfer: Transfer, session: PrefillEngine) -> None:
        """Only when all is there: a worker that is told frees its blocks, and a request that fails is asked again."""
        for part in transfer.parts:
            if part.phase == "moved" and not transfer.ended:
                self._told(transfer, session, part)

    def _told(self, transfer: Transfer, session: PrefillEngine, part: PeerProgress) -> None:
        try:
            done = self._done(transfer, session, part)
            if done is not None:
                _send(part.member.line.send, done)
                part.phase = "told"
        except Exception as error:
            self.broken(transfer, part, error)

    def _done(self, transfer: Transfer, session: PrefillEngine, part: PeerProgress) -> Done | None:
        """What a prefill worker is told at the end, None while it is still being summed."""
        name, sample = transfer.request.id, transfer.sample
        if sample is None or not part.member.reads or not transfer.demand.runs:
            return Done(name, part.hold, transfer.attempt)
        sums = self._sums(transfer, session, part)
        if sums is None:
            return None
        return Done(name, part.hold, transfer.attempt, sums, (sample.every, sample.seed), _want(transfer))

    def _finish(self, transfer: Transfer, now: float) -> None:
        self._ledger.free(transfer.written)
        moved = sum(part.mover.moved for part in transfer.parts if part.mover is not None)
        self._counters.add("bytes", moved, direction="read")
        self._counters.observe("transfer_seconds", now - transfer.began)
        self._end(transfer, "done")

    def _end(self, transfer: Transfer, state: str) -> None:
        transfer.state = state
        self.running.pop(transfer.request.id, None)
        self._counters.add("requests", outcome=state)
        self._ended.append(transfer)


def call_back(transfer: Transfer) -> None:
    """Tell those who wait for a transfer that has ended. They may ask for anything, of any worker: hold no lock."""
    callbacks, transfer.callbacks = transfer.callbacks, []
    for callback in callbacks:
        try:
            callback(transfer)
        except Exception:
            logs.failure("callback failed", request=transfer.request.id)


def _want(transfer: Transfer) -> Want:
    one = transfer.request
    return Want(one.id, one.tokens, dict(one.lengths), pack(one.prefill), pack(one.decode))


def _send(send: Callable[[ToPrefill], bool], message: ToPrefill) -> None:
    if not send(message):
        raise PeerLostError("its line is full or broken: is it polled?")


def _waits(waiting: dict[int, str]) -> str:
    return ", ".join(f"prefill worker {worker} is {phase}" for worker, phase in waiting.items())
