"""Transfer table: the requests of a decode worker that are under way, and what happens to each until its end.

It owns the phases of all transfers: messages of prefill workers (inbox.py) and time reach them through it alone.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from functools import partial

from kvplan.plan.errors import BadRequestError, KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan, Runs
from kvplan.runtime.checksum.background import ChecksumThread
from kvplan.runtime.checksum.checksum import EVERY, Sample, of_read
from kvplan.runtime.control import messages as wire
from kvplan.runtime.decode.engines import PrefillConnection, PrefillEngine
from kvplan.runtime.decode.outcome import TransferState, outcome
from kvplan.runtime.decode.phases import Event, Phase
from kvplan.runtime.decode.quarantine import BlockLedger, Quarantine, block_bytes
from kvplan.runtime.decode.transfer import PeerProgress, Transfer
from kvplan.runtime.decode.unpacks import PageUnpacks
from kvplan.runtime.errors import (
    EXITS,
    DeadlineError,
    LeaseError,
    LimitedError,
    QuarantinedError,
    TransferError,
    cause_text,
)
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.transfer import chunks, executor, slices
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover
from kvplan.runtime.transfer.demand import Demand
from kvplan.runtime.transfer.executor import ExecutorContext, Slice, TransferExecutor
from kvplan.runtime.transfer.gather import IndexScratch
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits
from kvplan.runtime.transfer.prepare import PreparedLink
from kvplan.runtime.transport.base import Transport

# What is waited for, of a prefill worker in each phase, as it follows that worker's name.
WAITS_FOR = {
    Phase.CLAIMING: "has not confirmed that it holds all of it",
    Phase.MOVING: "has bytes that are still on their way",
    Phase.MOVED: "is finished, and waits for the others",
    Phase.TOLD: "has not confirmed that its blocks were held to the end",
    Phase.CONFIRMED: "has confirmed it",
}


class TransferTable:
    """All transfers of one decode worker. Its owner alone calls it."""

    def __init__(
        self,
        pool: Pool,
        transport: Transport,
        limits: Limits,
        counters: Counters,
        stage: Stage | None = None,
        ended: deque[Transfer] | None = None,
    ) -> None:
        """`ended` gets the transfers that end."""
        self.running: dict[str, Transfer] = {}
        self.ledger = BlockLedger(pool.side, pool.blocks)
        self.quarantine = Quarantine(self.ledger, transport)
        self.admission = AdmissionQueue[Slice](limits)
        self.context = ExecutorContext(transport, self.admission, IndexScratch(), limits.slice_bytes, stage)
        self._pool, self._limits, self._counters = pool, limits, counters
        self._checksums = ChecksumThread[PeerProgress, wire.Sums]()
        self.ended = deque[Transfer]() if ended is None else ended
        self._attempts = itertools.count(1)

    @property
    def in_use(self) -> str:
        """What a suspension would have to wait for, empty if nothing."""
        running, kept = len(self.running), self.ledger.quarantined()
        return f"{running} requests are under way, blocks {kept} are in quarantine" if running or kept else ""

    @property
    def summing(self) -> int:
        """How many checksums are being computed, or wait for that."""
        return len(self._checksums)

    def moving(self) -> bool:
        """Whether bytes may be on their way here."""
        parts = (part for transfer in self.running.values() for part in transfer.parts)
        return any(part.fed for part in parts)

    def quarantined_bytes(self) -> int:
        """Bytes of the blocks that may still be written: of each arena, as its largest group has them."""
        return sum(size * self.ledger.count(arena) for arena, size in block_bytes(self._pool).items())

    def begin(self, transfer: Transfer, engine: PrefillEngine) -> None:
        """Claim a request from all workers of an engine. Raises what is wrong with it, and then nothing is taken."""
        request, demand = self._accept(engine, transfer.request, transfer.streamed)
        self._check_room(request.id)
        engine.reach()
        self.ledger.check(demand.written)
        parts = tuple(self._progress(engine, connection, demand) for connection in engine.connections.values())
        attempt = next(self._attempts)
        transfer.request, transfer.demand, transfer.written = request, demand, demand.written
        transfer.attempt, transfer.engine, transfer.parts = attempt, engine, parts
        self.running[request.id] = transfer
        self.ledger.take(transfer.written)
        engine.used = transfer.began
        for part in transfer.parts:
            if not transfer.ended:
                self._or_fail(self._claim, transfer, part)

    def refuse(self, transfer: Transfer, error: KvplanError) -> None:
        """End a transfer of which nothing has moved. One that has ended stays as it is: its blocks may be untrusted."""
        if transfer.ended:
            return
        transfer.error = error
        self._counters.add("failures", reason=error.code)
        self._end(transfer, outcome(error).state)

    def predict(self, request: Request, engine: PrefillEngine) -> dict[int, int]:
        """Descriptors that would be posted, by prefill worker. Raises what is wrong with the request."""
        _, demand = self._accept(engine, request, streamed=False)
        posted = dict[int, int]()
        for worker, connection in sorted(engine.connections.items()):
            runs = demand.of(engine.shard(connection)) if connection.reads else {}
            posted[worker] = executor.predict(connection.links.of(None), runs, self.context) if runs else 0
        return posted

    def claims(self, engine: PrefillEngine, connection: PrefillConnection) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Requests that a worker must go on keeping, and those of them that need not be whole.

        Not those that it was told are over: a claim after that is taken for a new read.
        """
        transfers = [transfer for transfer in self.running.values() if transfer.engine is engine]
        parts = ((transfer, _part(transfer, connection)) for transfer in transfers)
        needing = [(transfer, part) for transfer, part in parts if part.phase < Phase.TOLD]
        names = tuple(transfer.request.id for transfer, _ in needing)
        return names, tuple(transfer.request.id for transfer, part in needing if _in_chunks(transfer, part))

    def find(
        self, engine: PrefillEngine, connection: PrefillConnection, request: str
    ) -> tuple[Transfer, PeerProgress] | None:
        """The running transfer of a request from this engine, and this worker's part in it."""
        transfer = self.running.get(request)
        if transfer is None or transfer.engine is not engine:
            return None
        return transfer, _part(transfer, connection)

    def claimed(self, transfer: Transfer, part: PeerProgress, pin: int) -> None:
        """A prefill worker says that it keeps the request, by this pin."""
        if part.phase is not Phase.CLAIMING:
            if part.pin != pin and part.phase is not Phase.CONFIRMED:
                text = f"prefill worker {part.connection.worker} let pin {part.pin} of it go and keeps it anew as {pin}"
                self.fail(transfer, LeaseError(f"request {transfer.request.id}: {text}: ask again"))
            return
        part.pin = pin
        part.on(Event.CLAIMED)
        self._or_fail(self._move, transfer, part)

    def not_yet(self, transfer: Transfer, part: PeerProgress, held: bool) -> None:
        """A prefill worker waits for the request. One that holds it now, and did not before, is told its blocks."""
        if part.phase is not Phase.CLAIMING:
            return
        came, part.unheld = part.unheld and held, not held
        if came:
            self._or_fail(self._claim, transfer, part)

    def offered(self, transfer: Transfer, part: PeerProgress, offer: wire.Offer) -> None:
        """The next chunk of a request is there to be read."""
        part.on(Event.OFFERED)
        part.offers += 1
        self._or_fail(self._take, transfer, part, offer)

    def asked(self, transfer: Transfer, part: PeerProgress, asked: wire.AskBuffer) -> None:
        """A prefill worker writes a piece by way of the stage here."""
        self._or_fail(self._want, transfer, part, asked)

    def written(self, transfer: Transfer, part: PeerProgress, size: int) -> None:
        """A prefill worker has written all that is needed from it: what is in the stage is copied to its place."""
        if not part.unpacks.all_moved:
            text = "all is written, it says, and pieces that it asked buffers for are not"
            self.broken(transfer, part, TransferError(f"request {transfer.request.id}: {text}"))
            return
        part.wrote(size)
        part.on(Event.WRITTEN)

    def step(self, transfer: Transfer, now: float) -> None:
        """One step of a running transfer, or the rest of its end."""
        if transfer.ended:
            return
        for part in transfer.parts:
            if part.executor is not None and (part.phase is Phase.MOVING or not part.placed):
                self._follow(transfer, part, part.executor)
            elif part.unpacks:
                self._or_fail(self._unpack, transfer, part)
            elif part.phase is Phase.CLAIMING and part.executor is None and len(self.running) == 1:
                self._foresee(transfer, part)
        phase = transfer.phase
        if not transfer.ended and phase is Phase.MOVED:
            self._tell(transfer)
        if transfer.ended:
            return
        if phase is Phase.CONFIRMED and transfer.placed:
            self._finish(transfer, now)
        elif now > transfer.deadline:
            self.fail(transfer, _late(transfer))
        elif now >= transfer.held_by and (unheld := _unheld(transfer)):
            self.fail(transfer, _not_held(transfer, unheld))

    def broken(self, transfer: Transfer, part: PeerProgress, cause: Exception) -> None:
        """Something went wrong between here and one prefill worker."""
        if isinstance(cause, RequestError):
            self.fail(transfer, cause)
            return
        worker = part.connection.worker
        error = TransferError(f"request {transfer.request.id}, prefill worker {worker}: {cause_text(cause)}")
        error.__cause__ = cause
        self.fail(transfer, error)

    def fail(self, transfer: Transfer, error: RequestError) -> None:
        """End a transfer with `error`; its blocks are free only when nothing can write them any more."""
        if transfer.ended:
            return
        if not transfer.attempt:
            self.refuse(transfer, error)
            return
        error.untrusted = {group: tuple(ids.tolist()) for group, ids in transfer.written.items()}
        transfer.error = error
        for part in transfer.parts:
            part.on(Event.FAILED)
            part.slices = [] if part.executor is None else part.executor.stop()
            part.unpacks.leave()
            part.unsaid = not part.connection.control.send(wire.Leave(transfer.request.id)) and part.writes
            self._checksums.drop(part)
        self.quarantine.add(transfer)
        self._counters.add("failures", reason=error.code)
        self._end(transfer, outcome(error).state)

    def stop(self, engine: PrefillEngine | None, reason: Callable[[str], RequestError]) -> None:
        """Fail all transfers from an engine, with None from any. `reason` makes the error for a request's name.

        Not those that all workers of an engine have confirmed: they need it no more, and end when all is in its place.
        """
        for transfer in list(self.running.values()):
            needed = transfer.engine is engine and transfer.phase is not Phase.CONFIRMED
            if engine is None or needed:
                self.fail(transfer, reason(f"request {transfer.request.id}"))

    def finish(self, now: float) -> None:
        """End what all have confirmed, and whose bytes are in their place: it is done, whatever becomes of anybody."""
        for transfer in [one for one in self.running.values() if one.phase is Phase.CONFIRMED]:
            self.step(transfer, now)

    def close(self) -> None:
        """After everything has failed: sums end, for the memory may go away."""
        self._checksums.close()

    def _accept(self, engine: PrefillEngine, request: Request, streamed: bool) -> tuple[Request, Demand]:
        """The request, checked and copied, and what it demands; of a streamed one, as far as decode's tables tell.

        Raises BadRequestError.
        """
        derive = engine.demands.foreseen if streamed else engine.demands.demand
        try:
            checked = engine.rules.check(request, engine.pools, self._pool.blocks, fed=streamed)
            return checked, derive(checked)
        except (KvplanError, *EXITS):
            raise
        except BaseException as error:  # The request, and what it has, is the caller's.
            raise BadRequestError(f"the request cannot be read: {type(error).__name__}: {error}") from error

    def _progress(self, engine: PrefillEngine, connection: PrefillConnection, demand: Demand) -> PeerProgress:
        unpacks = PageUnpacks(self.context.stage, connection.peer)
        return PeerProgress(connection, _counter(engine, connection, demand), unpacks)

    def _check_room(self, name: str) -> None:
        if name in self.running:
            raise BadRequestError(f"request {name} is already under way: use one id per request")
        if self.quarantine.writes(name):
            raise QuarantinedError(f"request {name} failed, and a worker may still write it: ask again later")
        if len(self.running) >= self._limits.requests:
            text = f"{self._limits.requests} requests are under way"
            raise LimitedError(f"{text}: wait for some, or raise Limits.requests")

    def _claim(self, transfer: Transfer, part: PeerProgress) -> None:
        name, engine = transfer.request.id, transfer.engine
        if _in_chunks(transfer, part):
            part.heartbeat = engine.claim(part.connection, (name,), (name,))
        else:
            # Of a request of which nothing is read it does not matter what was fed.
            tokens = {name: transfer.request.tokens} if _moves(transfer, part) else {}
            tables = {name: wire.pack(transfer.request.prefill)}
            part.heartbeat = engine.claim(part.connection, (name,), (), tables, tokens)

    def _move(self, transfer: Transfer, part: PeerProgress) -> None:
        """Begin to move what comes from one prefill worker, now that it keeps the request."""
        connection, engine = part.connection, transfer.engine
        if not _moves(transfer, part):
            part.on(Event.ARRIVED)
        elif engine.push:
            stage, part.writes = self.context.stage, True
            lends = stage is not None and not stage.stuck(connection.peer)
            connection.control.say(_write_request(transfer.request, lends))
        elif not transfer.streamed:
            executor = self._executor(transfer, part)
            executor.add(*_whole(transfer, part))
            executor.complete = True

    def _want(self, transfer: Transfer, part: PeerProgress, asked: wire.AskBuffer) -> None:
        connection = part.connection
        shard = transfer.engine.shard(connection)
        part.unpacks.want(connection.images, transfer.demand, shard, asked, connection.control)

    def _unpack(self, transfer: Transfer, part: PeerProgress) -> None:
        part.unpacks.step(transfer.request.id, part.connection.control)

    def _foresee(self, transfer: Transfer, part: PeerProgress) -> None:
        """Prepare what will be read while nobody has anything else to do than to wait for the answer to a claim."""
        if _moves(transfer, part) and not (transfer.engine.push or transfer.streamed):
            self._or_fail(self._prepare, transfer, part)

    def _prepare(self, transfer: Transfer, part: PeerProgress) -> None:
        self._executor(transfer, part).foresee(*_whole(transfer, part))

    def _take(self, transfer: Transfer, part: PeerProgress, offer: wire.Offer) -> None:
        """Read what a request takes of a chunk."""
        engine, request, connection = transfer.engine, transfer.request, part.connection
        plan = engine.plan
        layers = None if offer.layers is None else frozenset(offer.layers)
        tokens = offer.tokens or request.tokens
        offered = Chunk(tokens, offer.last, layers, wire.unpack(offer.tables), offer.only)
        part.cover = part.cover or ChunkCover(plan, request, connection.worker)
        chunk = chunks.received(plan, request, offered, connection.blocks, part.cover)
        if chunk is None or not connection.reads:
            return
        executor = self._executor(transfer, part)
        demand = chunks.part(plan, self._pool.worker, request, chunk, connection.worker)
        if runs := demand.of(engine.shard(connection)):
            executor.add(connection.links.of(chunk.layers), runs)
        executor.complete = chunk.last

    def _executor(self, transfer: Transfer, part: PeerProgress) -> TransferExecutor:
        """What moves a part's bytes, made when first asked for."""
        if part.executor is None:
            name, connection = transfer.request.id, part.connection
            part.executor = TransferExecutor(
                name, connection.peer, self.context, lambda error: self.broken(transfer, part, error)
            )
        return part.executor

    def _follow(self, transfer: Transfer, part: PeerProgress, executor: TransferExecutor) -> None:
        executor.step()
        if part.phase is Phase.MOVING and executor.read:
            part.on(Event.ARRIVED)
            self._counters.add("posts", executor.descriptors)
            self._counters.add("spans", executor.spans)
            if executor.staged:
                self._counters.add("staged_bytes", executor.staged, direction="read")

    def _tell(self, transfer: Transfer) -> None:
        """Only when all was read: a worker that is told frees its blocks, and a request that fails is asked again.

        What a stage still has is copied to its place meanwhile.
        """
        for part in transfer.parts:
            if part.phase is Phase.MOVED:
                self._or_fail(self._tell_one, transfer, part)

    def _tell_one(self, transfer: Transfer, part: PeerProgress) -> None:
        done = self._done(transfer, part)
        if done is not None:
            part.connection.control.say(done)
            part.on(Event.TOLD)

    def _done(self, transfer: Transfer, part: PeerProgress) -> wire.Done | None:
        """What a prefill worker is told at the end, None while it is still being summed."""
        assert part.pin is not None
        name, sample = transfer.request.id, transfer.sample
        if sample is None or not _moves(transfer, part):
            return wire.Done(name, part.pin, transfer.attempt)
        sums = self._sums(transfer, part) if part.placed else None
        if sums is None:
            return None
        asked = _write_request(transfer.request)
        return wire.Done(name, part.pin, transfer.attempt, sums, (sample.every, sample.seed), asked)

    def _sums(self, transfer: Transfer, part: PeerProgress) -> wire.Sums | None:
        """(cache, layer, digest) of what came from a prefill worker, None until that is known. Raises as `of_read`."""
        if part not in self._checksums:
            arguments = transfer.engine.plan, part.connection.worker, transfer.request, transfer.sample or EVERY
            self._checksums.start(part, lambda: _decode_sums(self._pool, *arguments))
        return self._checksums.take(part)

    def _finish(self, transfer: Transfer, now: float) -> None:
        self.ledger.free(transfer.written)
        moved = sum(part.executor.moved for part in transfer.parts if part.executor is not None)
        self._counters.add("moved_bytes", moved, direction="read")
        self._counters.observe("transfer_duration_seconds", now - transfer.began)
        self._end(transfer, TransferState.DONE)

    def _end(self, transfer: Transfer, state: TransferState) -> None:
        transfer.state = state
        self.ended.append(transfer)
        if transfer.attempt:
            del self.running[transfer.request.id]
        self._counters.add("requests", outcome=state)

    def _or_fail(self, step: Callable[..., None], transfer: Transfer, part: PeerProgress, *arguments: object) -> None:
        """Take a step of a transfer with one prefill worker; what goes wrong ends the transfer."""
        try:
            step(transfer, part, *arguments)
        except Exception as error:
            self.broken(transfer, part, error)


def _part(transfer: Transfer, connection: PrefillConnection) -> PeerProgress:
    return next(part for part in transfer.parts if part.connection is connection)


def _counter(engine: PrefillEngine, connection: PrefillConnection, demand: Demand) -> Callable[[], int]:
    """What counts the bytes that come from a prefill worker; 0 where it writes them, until it says how many they were.

    It may be asked by any thread, and when the engine is gone: it has the link that was prepared, and asks for none.
    """
    if engine.push or not connection.reads:
        return int
    return partial(_size, connection.links.of(None), demand, engine.shard(connection))


def _size(link: PreparedLink, demand: Demand, shard: int) -> int:
    runs = demand.of(shard)
    return slices.size(link, runs) if runs else 0


def _whole(transfer: Transfer, part: PeerProgress) -> tuple[PreparedLink, dict[str, Runs]]:
    """All that a request reads from a prefill worker: over which link, and the runs by pair."""
    return part.connection.links.of(None), transfer.demand.of(transfer.engine.shard(part.connection))


def _moves(transfer: Transfer, part: PeerProgress) -> bool:
    """Whether anything comes from a prefill worker."""
    return part.connection.reads and bool(transfer.demand.runs)


def _in_chunks(transfer: Transfer, part: PeerProgress) -> bool:
    """Whether a request is taken as far as it is there. A worker that nothing comes from keeps it until all is there:

    it frees its blocks when it is told that they are not needed, which must not be before they are computed.
    """
    return _moves(transfer, part) and (transfer.streamed or transfer.engine.push)


def _late(transfer: Transfer) -> DeadlineError:
    waiting = [part for part in transfer.parts if part.phase is not Phase.CONFIRMED or not part.placed]
    text = ", ".join(f"prefill worker {part.connection.worker} {_state(part)}" for part in waiting)
    seconds = transfer.deadline - transfer.began
    return DeadlineError(f"request {transfer.request.id} did not end within {seconds:g} s: {text}")


def _state(part: PeerProgress) -> str:
    if part.unheld and part.phase is Phase.CLAIMING:
        return "does not hold it"
    copied = part.phase > Phase.MOVING and not part.placed
    return WAITS_FOR[part.phase] + (", and its bytes are still being copied from the stage" if copied else "")


def _unheld(transfer: Transfer) -> list[int]:
    """The prefill workers that do not hold it, by their last word."""
    waiting = (part for part in transfer.parts if part.phase is Phase.CLAIMING)
    return [part.connection.worker for part in waiting if part.unheld]


def _not_held(transfer: Transfer, workers: list[int]) -> LeaseError:
    seconds = transfer.held_by - transfer.began
    text = f"is not held by prefill workers {workers} {seconds:g} s after it was asked for"
    return LeaseError(f"request {transfer.request.id} {text}: call hold or open on every one, or wait longer")


def _write_request(request: Request, lends: bool = True) -> wire.WriteRequest:
    tables = wire.pack(request.prefill), wire.pack(request.decode)
    return wire.WriteRequest(request.id, request.tokens, dict(request.lengths), *tables, lends)


def _decode_sums(pool: Pool, plan: Plan, prefill_worker: int, request: Request, sample: Sample) -> wire.Sums:
    sums = of_read(plan, prefill_worker, pool.worker, "decode", pool, request, sample)
    return tuple((cache, layer, value) for (cache, layer), value in sorted(sums.items()))
