"""Decode driver: carries out the outputs of the decode core, and reports the results to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ParamSpec

from kvplan.plan import planes as names
from kvplan.plan.errors import KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.runtime.checksum.background import ChecksumThread, summed
from kvplan.runtime.checksum.checksum import EVERY
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.messages import Sums
from kvplan.runtime.decode.prefill_engine import PrefillConnection, PrefillEngine
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.decode import DecodeCore
from kvplan.runtime.protocol.effects import Output, Send
from kvplan.runtime.protocol.load_table import accepted, write_request
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer
from kvplan.runtime.protocol.phases import Phase
from kvplan.runtime.staging.lending import Lender, LentPieces
from kvplan.runtime.staging.requested_images import check_written
from kvplan.runtime.transfer import executor
from kvplan.runtime.transfer.executor import ExecutorContext, MoveEnds
from kvplan.runtime.transfer.limits import Limits
from kvplan.runtime.transfer.mover import Mover, MoveResults
from kvplan.runtime.transport.base import is_lost

P = ParamSpec("P")
# Messages about buffers of the stage here.
BUFFERS = wire.AskBuffer, wire.ReturnBuffer
# Seconds between two checks whether the transport has lost a peer.
WRITER_PROBE_SECONDS = 0.1


class DecodeDriver:
    """The core and the I/O of one decode worker. Only its worker's owner calls it.

    `lost` is called with engines that cannot be used any more. Requests that end are added to `ended`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits,
        counters: Counters,
        connection: Callable[[PrefillPeer], PrefillConnection],
        ended: deque[Transfer],
        lost: Callable[[KnownEngine, KvplanError], None],
    ) -> None:
        pool, transport, stage = endpoint.pool, endpoint.transport, endpoint.stage
        self.core = core = DecodeCore(pool.side, pool.blocks, limits.requests, transport.linger_s)
        self.context = ExecutorContext(transport, limits, counters, stage)
        results: MoveResults[LoadPart] = MoveResults(
            broken=core.loads.broken,
            placed=lambda part, size: core.placed(part),
            settled=lambda part, lost: core.settled(part),
            arrived=core.arrived,
        )
        self.reads, self.ended = Mover[LoadPart](self.context, self._ends, results, push=False), ended

        def over(part: LoadPart, left: bool) -> None:
            (core.settled if left else core.placed)(part)

        # Pieces that prefill workers write into the stage here, by part, until they are copied to their places.
        self.lent = Lender[LoadPart](self._pieces, lambda part: part.writes, over)
        # Checksums that are being computed, or wait. Close this after everything else was stopped.
        self.sums = ChecksumThread[LoadPart, Sums | Exception]()
        self._transport, self._stage, self._counters, self._connection = transport, stage, counters, connection
        self._pool, self._clock, self._lost = pool, endpoint.clock, lost
        self._block_bytes, self._probed = block_bytes(pool), float("-inf")
        self._losing = deque[effects.EngineLost]()
        self._acts: dict[type[Output], Callable[[Any], object]] = {
            effects.Send: self._send,
            effects.Counted: lambda output: counters.add_messages(output.kinds),
            effects.AskWrite: self._ask_write,
            effects.Ended: self._end,
            effects.EngineLost: self._losing.append,
            effects.Foresee: lambda output: self.reads.foresee(output.part, output.runs),
            effects.Move: lambda output: self.reads.move(output.key, output.layers, output.runs, last=output.last),
            effects.Buffer: self._buffer,
            effects.Sum: self._sum,
            effects.Stop: self._stop,
        }

    def carry_out(self) -> None:
        """Carry out the core's outputs, and those that result, until none are left."""
        while outputs := self.core.take():
            for output in outputs:
                self._acts[type(output)](output)
        # Only now, because the other outputs were made before the engine was lost.
        while self._losing:
            lost = self._losing.popleft()
            self._lost(lost.engine, lost.error)

    def start(self, load: Load, engine: PrefillEngine) -> None:
        """Start a request from an engine. An error of the request ends it."""
        try:
            engine.reach()
        except RequestError as error:
            self.fail(load, error)
        else:
            self.command(self.core.begin, load, engine.known, self._clock())

    def fail(self, load: Load, error: KvplanError) -> None:
        """End a request with an error, whether or not it has begun."""
        self.command(self.core.loads.fail, load, error)

    def command(self, act: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Give the core a command, and carry out its outputs."""
        act(*arguments, **named)
        self.carry_out()

    def hear(self, engine: PrefillEngine, connection: PrefillConnection, messages: Iterable[Any]) -> None:
        """Act on messages of a prefill worker."""
        broken, now = connection.control.error is not None, self._clock()
        for message in messages:
            kind = type(message)
            if kind is wire.Lent:
                known = connection.stage.lent(message.request, message.number, message.address)
                self._counters.add("messages", kind=MessageKind.LENT if known else MessageKind.DUPLICATE)
                continue
            if kind is wire.ClaimAnswers:
                connection.stage.lends = message.lends
            self.core.hear(engine.known, connection.known, message, now, broken=broken)
            if kind in BUFFERS:
                # The core must know the result for a buffer before the next message about its request.
                self.carry_out()
        self.carry_out()

    def follow(self) -> None:
        """Advance reads, lent buffers and checksums, and report their results to the core."""
        self.reads.step()
        if self.lent.all:
            self.lent.step()
        for part, sums in self.sums.take_all():
            self.core.summed(part, sums)
        self.carry_out()

    def tick(self, now: float) -> None:
        """Do what is due, after all messages were read."""
        if self.reads.foreseen:
            self.reads.prepare()
        if self.core.loads.quarantine:
            self._probe(now)
        self.command(self.core.tick, now)
        self.command(self.core.sweep, now)

    def predict(self, request: Request, engine: PrefillEngine) -> dict[int, int]:
        """Return how many descriptors would be posted, by prefill worker. Raises BadRequestError."""
        _, demand = accepted(engine.known.pair, request, streamed=False)
        posted = dict[int, int]()
        for worker, connection in sorted(engine.connections.items()):
            runs = demand.of(connection.known.shard) if connection.known.reads else {}
            posted[worker] = executor.predict(connection.links.of(None), runs, self.context) if runs else 0
        return posted

    @property
    def quarantined_bytes(self) -> int:
        """Bytes of the blocks that may still be written, counted by the largest group of each arena."""
        return sum(size * self.core.loads.ledger.count(arena) for arena, size in self._block_bytes.items())

    @property
    def moving(self) -> bool:
        """Whether bytes may be moving to this worker."""
        if self.reads.touching or any(not pieces.left for pieces in self.lent.all.values()):
            return True
        # Only engines that push write here: without one, do not look at every request.
        if not any(engine.push for engine in self.core.engines):
            return False
        parts = (part for load in self.core.loads.running.values() for part in load.parts)
        return any(part.writes and part.phase is Phase.MOVING for part in parts)

    def _send(self, send: Send) -> None:
        control = self._connection(send.peer).control
        if send.droppable and control.behind:
            return
        say = control.send if send.droppable else control.say
        try:
            say(send.message)
        except KvplanError as error:
            self.core.unsent(send.peer, send.message, error)

    def _sum(self, asked: effects.Sum) -> None:
        load, part = asked.load, asked.part
        plan, sample = load.engine.pair.plan, load.sample or EVERY
        self.sums.start(part, partial(summed, plan, part.worker, self._pool, load.request, sample))

    def _ends(self, part: LoadPart) -> MoveEnds:
        peer = part.peer.name
        return MoveEnds(part.request, peer, peer, self._connection(part.peer).links, part.meter)

    def _stop(self, stop: effects.Stop) -> None:
        self.sums.drop(stop.key)
        if not self.lent.leave(stop.key):
            self.reads.stop(stop.key)

    def _buffer(self, buffer: effects.Buffer) -> None:
        """Handle a writer's message that asks for a buffer for a piece, or returns one."""
        part, message = buffer.key, buffer.message
        if isinstance(message, wire.ReturnBuffer) and self.lent.give_back(part, message):
            self.core.returned(part, message.number)
        elif isinstance(message, wire.AskBuffer) and self.core.loads.of(part) is not None:
            check = partial(check_written, message.request, wanted=part.runs)
            try:
                self.lent.want(part, message, check)
            except Exception as error:
                self._not_lent(part, error)

    def _pieces(self, part: LoadPart) -> LentPieces:
        connection, peer = self._connection(part.peer), part.peer.name
        say, failed = connection.control.say, lambda _, error: self._not_lent(part, error)
        return LentPieces(self._stage, connection.images, peer, packed=False, say=say, failed=failed)

    def _not_lent(self, part: LoadPart, error: Exception) -> None:
        """Stop lending for a part, and fail its load."""
        if (pieces := self.lent.all.get(part)) is not None:
            pieces.leave()
        self.core.loads.broken(part, error)

    def _ask_write(self, ask: effects.AskWrite) -> None:
        peer = ask.part.peer
        self._send(Send(peer, write_request(ask.load.request, not self._stage.stuck(peer.name))))

    def _end(self, ended: effects.Ended) -> None:
        load, counters = ended.load, self._counters
        assert isinstance(load, Transfer)
        counters.add("requests", outcome=load.state.value)
        if load.error is None:
            counters.add("moved_bytes", sum(part.meter.moved for part in load.parts), direction="read")
            counters.observe("transfer_duration_seconds", self._clock() - load.began)
        else:
            counters.add("failures", reason=load.error.code)
        self.ended.append(load)

    def _probe(self, now: float) -> None:
        """Find writers that no message reaches and that the transport has lost, every WRITER_PROBE_SECONDS."""
        quarantine = self.core.loads.quarantine
        if now < self._probed + WRITER_PROBE_SECONDS:
            return
        self._probed = now
        silent = (peer for peer in quarantine.writers() if self._connection(peer).control.broken() is not None)
        if gone := frozenset(peer for peer in silent if is_lost(self._transport, peer.name)):
            quarantine.gone(gone)


def block_bytes(pool: Pool) -> dict[int, int]:
    """Return the bytes of one logical block (or slot) by arena, in its largest group."""
    groups = {group.name: group for group in pool.side.groups}
    sizes: dict[str, int] = {}
    for plane in names.planes(pool.side.workers[pool.worker]):
        sizes[plane.group] = sizes.get(plane.group, 0) + plane.stride * groups[plane.group].ratio
    found: dict[int, int] = {}
    for name, size in sizes.items():
        found[groups[name].arena] = max(size, found.get(groups[name].arena, 0))
    return found
