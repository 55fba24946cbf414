"""Load table: the requests of a decode worker that are in progress, and their steps from the claim to the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvplan.plan.errors import BadRequestError, KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Side
from kvplan.runtime.control import messages as wire
from kvplan.runtime.errors import EXITS, LeaseError, LimitedError, QuarantinedError, TransferError, cause_text
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.effects import Outputs, Send
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer, TransferState
from kvplan.runtime.protocol.phases import Event, Phase
from kvplan.runtime.protocol.quarantine import BlockLedger, Quarantine
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import Chunk, ChunkCover
from kvplan.runtime.transfer.demand import Demand, PairRules


class LoadTable(Outputs):
    """All requests of one decode worker by name. `out` are the outputs for its worker to carry out."""

    def __init__(self, side: Side, blocks: Mapping[str, int], most: int, linger_s: float) -> None:
        super().__init__()
        self.running: dict[str, Load] = {}
        self.ledger = BlockLedger(side, blocks)
        self.quarantine = Quarantine(self.ledger, linger_s)
        self._most, self._attempts = most, 0

    def of(self, part: LoadPart) -> Load | None:
        """Return the running load of a part, or None."""
        load = self.running.get(part.request)
        return load if load is not None and part in load.parts else None

    def find(self, engine: KnownEngine, peer: PrefillPeer, request: str) -> tuple[Load, LoadPart] | None:
        """Return the running load of a request from this engine, and this worker's part in it; None if none runs."""
        load = self.running.get(request)
        if load is None or load.engine is not engine:
            return None
        return load, _part(load, peer)

    def begin(self, load: Load, engine: KnownEngine) -> bool:
        """Claim a request from all workers of an engine. Returns whether it runs: an invalid request ends at once."""
        try:
            self._take(load, engine)
        except KvplanError as error:
            self.fail(load, error)
            return False
        for part in load.parts:
            if not load.ended:
                self.or_fail(part, self.claim, load, part)
        if not (load.ended or engine.push or load.streamed) and len(self.running) == 1:
            for part in [part for part in load.parts if part.runs]:
                part.begun = True
                self.out.append(effects.Foresee(part, part.runs))
        return not load.ended

    def claims(self, engine: KnownEngine, peer: PrefillPeer) -> tuple[tuple[str, ...], frozenset[str]]:
        """Return the requests that a worker must still keep, and those of them that are read in chunks.

        Requests that it was sent Done for are left out: a claim after Done begins a new read.
        """
        loads = [load for load in self.running.values() if load.engine is engine]
        needing = [(load, part) for load in loads if (part := _part(load, peer)).phase < Phase.TOLD]
        streamed = frozenset(load.request.id for load, part in needing if load.in_chunks(part))
        return tuple(load.request.id for load, _ in needing), streamed

    def claim(self, load: Load, part: LoadPart) -> None:
        """Ask a worker to keep a request, and name its blocks unless it is read in chunks."""
        name, number = load.request.id, load.engine.next_heartbeat()
        part.heartbeat = number
        if load.in_chunks(part):
            self.out.append(Send(part.peer, wire.Claim(number, (name,), (name,))))
            return
        # A request that reads nothing fits whatever tokens were opened.
        tokens = {name: load.request.tokens} if part.runs else {}
        tables = {name: wire.pack(load.request.prefill)}
        self.out.append(Send(part.peer, wire.Claim(number, (name,), (), tables, tokens)))

    def claimed(self, load: Load, part: LoadPart, hold: int) -> None:
        """Note that a worker keeps the request under this hold, and begin to move it."""
        if part.phase is not Phase.CLAIMING:
            if part.hold != hold and part.phase is not Phase.CONFIRMED:
                text = f"prefill worker {part.worker} ended hold {part.hold} of it and holds it again as {hold}"
                self.fail(load, LeaseError(f"request {load.request.id}: {text}: ask again"))
            return
        part.hold = hold
        part.on(Event.CLAIMED)
        if not part.runs:
            part.on(Event.ARRIVED)
        elif load.engine.push:
            part.writes = True
            self.out.append(effects.AskWrite(load, part))
        elif not load.streamed:
            self._move(part, effects.Move(part, None, part.runs, last=True))

    def offered(self, load: Load, part: LoadPart, offer: wire.Offer) -> None:
        """Read the part of the next chunk that the request needs."""
        part.on(Event.OFFERED)
        part.offers += 1
        pair, request, peer = load.engine.pair, load.request, part.peer
        layers = None if offer.layers is None else frozenset(offer.layers)
        offered = Chunk(offer.tokens or request.tokens, offer.last, layers, wire.unpack(offer.tables), offer.only)
        part.cover = part.cover or ChunkCover(pair.plan, request, peer.worker)
        chunk = chunks.received(pair.plan, request, offered, peer.blocks, part.cover)
        if chunk is None or not peer.reads:
            return
        wanted = chunks.part(pair.demands, request, chunk, peer.worker).of(peer.shard)
        self._move(part, effects.Move(part, chunk.layers, wanted, chunk.last))

    def advance(self, load: Load) -> None:
        """Send `Done` to all workers once every part has arrived, and end the request once all have confirmed.

        No worker is sent it before: a worker frees its blocks then, and a failed request could not be read again.
        Copies from the stage go on meanwhile.
        """
        if load.ended:
            return
        phase = load.phase
        if phase is Phase.ARRIVED:
            for part in load.parts:
                if part.phase is Phase.ARRIVED:
                    self._tell(load, part)
        elif phase is Phase.CONFIRMED and load.placed:
            self.ledger.free(load.written)
            self._end(load, TransferState.DONE)

    def tell_sums(self, load: Load, part: LoadPart, sums: wire.Sums) -> None:
        """Send a worker Done, with the checksums of the bytes that came from it."""
        assert part.hold is not None
        assert load.sample is not None
        sample = load.sample.every, load.sample.seed
        asked = write_request(load.request)
        done = wire.Done(load.request.id, part.hold, load.attempt, sums, sample, asked)
        self.out.append(Send(part.peer, done))
        part.on(Event.TOLD)

    def broken(self, part: LoadPart, cause: Exception) -> None:
        """Fail the load of a part because of an error with its prefill worker."""
        if (load := self.of(part)) is None:
            return
        if isinstance(cause, RequestError):
            self.fail(load, cause)
            return
        error = TransferError(f"request {load.request.id}, prefill worker {part.worker}: {cause_text(cause)}")
        error.__cause__ = cause
        self.fail(load, error)

    def fail(self, load: Load, error: KvplanError) -> None:
        """End a load with `error`. Its blocks go into quarantine until nothing can write them any more.

        A load that has ended stays as it is. A load that was not begun has moved nothing, and needs no quarantine.
        """
        if load.ended:
            return
        load.error = error
        if load.attempt:
            self._abort(load, error)
        self._end(load, TransferState.after(error))

    def _abort(self, load: Load, error: KvplanError) -> None:
        """Notify all workers that a load is given up, stop its reads, and put its blocks into quarantine."""
        if isinstance(error, RequestError):
            error.untrusted = {group: tuple(ids.tolist()) for group, ids in load.written.items()}
        for part in load.parts:
            part.on(Event.FAILED)
            part.settled = not part.begun
            self.out += [effects.Stop(part)] if part.begun or part.summing else []
            self.out.append(Send(part.peer, wire.Leave(load.request.id)))
        self.quarantine.add(load)

    def or_fail(self, part: LoadPart, step: Callable[..., None], *arguments: Any) -> None:
        """Call `step` of a load with one prefill worker; an error ends the load."""
        try:
            step(*arguments)
        except Exception as error:
            self.broken(part, error)

    def _take(self, load: Load, engine: KnownEngine) -> None:
        """Check a load, take its blocks and make its parts. If it raises, nothing is taken."""
        request, demand = accepted(engine.pair, load.request, streamed=load.streamed)
        self._check_room(request.id)
        self.ledger.take(demand.written)
        self._attempts += 1
        load.request, load.written = request, demand.written
        load.attempt, load.engine = self._attempts, engine
        runs = {peer: demand.of(peer.shard) if peer.reads else {} for peer in engine.peers}
        load.parts = tuple(LoadPart(request.id, peer, some) for peer, some in runs.items())
        self.running[request.id] = load
        engine.used = load.began

    def _check_room(self, name: str) -> None:
        if name in self.running:
            raise BadRequestError(f"request {name} is already in progress: use one id per request")
        if self.quarantine.writes(name):
            raise QuarantinedError(f"request {name} failed, and a worker may still write it: ask again later")
        if len(self.running) >= self._most:
            raise LimitedError(f"{self._most} requests are in progress: wait for some, or raise Limits.requests")

    def _move(self, part: LoadPart, move: effects.Move) -> None:
        part.begun, part.placed = True, False
        self.out.append(move)

    def _tell(self, load: Load, part: LoadPart) -> None:
        """Send a worker Done; if it needs checksums, have these computed first."""
        assert part.hold is not None
        if load.sample is None or not part.runs:
            self.out.append(Send(part.peer, wire.Done(load.request.id, part.hold, load.attempt)))
            part.on(Event.TOLD)
        elif part.placed and not part.summing:
            part.summing = True
            self.out.append(effects.Sum(load, part))

    def _end(self, load: Load, state: TransferState) -> None:
        load.state = state
        if load.attempt:
            del self.running[load.request.id]
        self.out.append(effects.Ended(load))


def accepted(pair: PairRules, request: Request, *, streamed: bool) -> tuple[Request, Demand]:
    """Return the request, checked and copied, and its demand; if streamed, the demand that decode's tables foresee.

    Raises BadRequestError.
    """
    derive = pair.demands.foreseen if streamed else pair.demands.demand
    try:
        checked = pair.checked(request, fed=streamed)
        return checked, derive(checked)
    except (KvplanError, *EXITS):
        raise
    except BaseException as error:  # The caller's objects may raise anything.
        raise BadRequestError(f"the request cannot be read: {type(error).__name__}: {error}") from error


def write_request(request: Request, lends: bool = True) -> wire.WriteRequest:
    """Return the message that asks a prefill worker to write a request."""
    tables = wire.pack(request.prefill), wire.pack(request.decode)
    return wire.WriteRequest(request.id, request.tokens, dict(request.lengths), *tables, lends, request.whole_last_page)


def _part(load: Load, peer: PrefillPeer) -> LoadPart:
    for part in load.parts:
        if part.peer is peer:
            return part
    raise KeyError(peer.name)
