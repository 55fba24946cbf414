"""Prefill driver: carries out the outputs of the prefill core, and reports the results to it.

It has the sockets, the transport, the stage and the threads, and keeps no protocol state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.checksum.background import ChecksumThread, compare
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import Hello, WorkerCard
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.endpoint import Endpoint
from kvplan.runtime.errors import CardError, PeerLostError, TransferError, cause_text
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.plans.catalog import PlanSource
from kvplan.runtime.prefill.events import Completed, WatchedRequests
from kvplan.runtime.prefill.peers import ReaderPeers
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.effects import Output, WriteKey
from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.protocol.prefill_inbox import UNFORESEEN, unforeseen
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.staging.lending import Lender, LentPieces
from kvplan.runtime.staging.requested_images import RequestedImages
from kvplan.runtime.transfer.executor import ExecutorContext
from kvplan.runtime.transfer.mover import Mover, MoveResults

P = ParamSpec("P")


class PrefillDriver:
    """The I/O of one prefill worker, with one registration of its memory. Only its worker's owner calls it.

    `free` is called with each released request. Greetings name `identity`, and use the plans that `plans` returns then.
    """

    def __init__(
        self,
        core: PrefillCore,
        endpoint: Endpoint,
        context: ExecutorContext,
        server: ControlServer,
        counters: Counters,
        clock: Callable[[], float],
        free: Callable[[Released], None],
        identity: Identity,
        plans: Callable[[], PlanSource],
    ) -> None:
        self.core, self._endpoint = core, endpoint
        self.peers = ReaderPeers(endpoint, identity, plans, core.readers, self.send, self._flush, self._carry_out)
        # Pieces that are packed here for decode workers to read. A lost connection never confirms its pieces.
        self.packs = Lender[Reader](self._pieces)
        results: MoveResults[WriteKey] = MoveResults(core.writes.broken, core.writes.moved, core.writes.settled)
        self.mover = Mover[WriteKey](context, self.peers.ends, results, push=True)
        self.watched = WatchedRequests()
        self._server, self._counters, self._clock = server, counters, clock
        self._comparisons = ChecksumThread[tuple[Reader, str], KvplanError | None]()
        # Failed sends (reader, request), or (reader, None) for a broken line, until the core has handled them.
        self._unsent = set[tuple[Reader, str | None]]()
        self._acts: dict[type[Output], Callable[[Any], object]] = {
            effects.Counted: lambda output: counters.add_messages(output.kinds),
            effects.Send: lambda output: self.send(output.peer, output.message),
            effects.Reply: lambda output: server.send(output.identity, output.message),
            effects.WriteFailed: self._write_failed,
            effects.Move: lambda output: self.mover.move(output.key, output.layers, output.runs, last=output.last),
            effects.Stop: lambda output: self.mover.stop(output.key),
            effects.Buffer: self._buffer,
            effects.ReaderLeft: self._reader_left,
            effects.Compare: self._compare,
            effects.RequestEnded: self._end,
            effects.Free: lambda output: free(output.released),
            effects.Drop: self._drop,
        }

    def command(self, act: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Give the core a caller's command, and carry out its outputs. Raises what the core raises."""
        self.core.at(self._clock())
        try:
            act(*arguments, **named)
        finally:
            self._carry_out()

    def hear(self, identity: bytes, message: Any, now: float) -> None:
        """Act on one message; greet a peer that says hello. No message makes it raise."""
        self.core.at(now)
        reader = self.peers.get(identity)
        if isinstance(message, CardError):
            logs.event(logs.DEBUG, "message malformed", reader=identity.hex(), error=message)
            self._counters.add("messages", kind=MessageKind.MALFORMED)
        elif isinstance(message, Hello):
            answer = self.peers.greet(identity, message)
            if isinstance(answer, WorkerCard):
                self._server.lines.meet(identity, message)
            self._server.send(identity, answer)
        elif reader is None:
            self.core.inbox.stranger(identity, message)
        else:
            error = self._reach(reader, message) if isinstance(message, wire.WriteRequest) else None
            self.core.inbox.hear(reader, message, error)
        self._carry_out()

    def step(self, now: float, completed: Completed, heard_until: float) -> None:
        """Do one step: announce and write computed chunks, end leases, answer readers whose checksums were compared.

        Leases end that are due by `heard_until`: all messages that came until then have been read.
        """
        self.core.at(now)
        self.watched.tell(self.core, completed)
        behind = {reader for identity in self._server.behind() if (reader := self.peers.get(identity)) is not None}
        borrowers = {reader for reader, pieces in self.packs.all.items() if pieces.lent}
        self.core.step(behind, borrowers, lends=not self._endpoint.stage.exhausted)
        self.core.leases.end_due(heard_until)
        self._carry_out()
        self.packs.step()
        for (reader, request), error in self._comparisons.take_all():
            self.core.dones.compared(reader, request, error)
        self.follow()

    def follow(self) -> None:
        """Advance the writes that are in progress."""
        self.mover.step()
        self._carry_out()

    def send(self, reader: Reader, message: msgspec.Struct) -> None:
        """Queue a message, which `say` sends. Notify the core if it cannot be queued."""
        request = getattr(message, "request", None)
        unsaid = self._unsent and not self._unsent.isdisjoint({(reader, request), (reader, None)})
        if unsaid or self.peers.get(reader.identity) is not reader:
            return
        try:
            sent = self._server.send(reader.identity, message)
        except CardError as error:
            logs.event(logs.WARNING, "message too large", reader=reader.key, error=error)
            self._unsent.add((reader, request))
            self.core.readers.unsent(reader, message, error)
            return
        if not sent:
            self._unsent.add((reader, None))
            lost = PeerLostError("its line is broken, or has been full for long")
            self.core.readers.unsent(reader, message, lost)

    def say(self) -> None:
        """Send the messages that were queued in this step, to each reader in one message."""
        self._flush()
        self._carry_out()

    def close(self) -> None:
        """Forget all readers, and end comparisons."""
        self.core.close()
        self._carry_out()
        self._comparisons.close()

    def _carry_out(self) -> None:
        """Carry out the core's outputs, and those that result, until none are left."""
        while outputs := self.core.take():
            self._unsent.clear()
            for output in outputs:
                self._acts[type(output)](output)

    def _flush(self) -> None:
        for identity in self._server.flush():
            if (reader := self.peers.get(identity)) is not None:
                self.core.readers.drop(reader, "its line is broken")

    def _reach(self, reader: Reader, message: wire.WriteRequest) -> KvplanError | None:
        """Reconnect to a reader that wants to be written to, if its connection broke. Returns why that failed."""
        if (stage := self.peers.stage(reader)) is not None:
            stage.lends = message.lends
        try:
            self.peers.reach(reader)
        except KvplanError as error:
            return error
        return None

    def _pieces(self, reader: Reader) -> LentPieces:
        """Return the pieces of a reader, with the images of all reads that are packed for it."""
        pool, stage, decode_worker = self._endpoint.pool, self._endpoint.stage, reader.claimant.worker
        images = RequestedImages(reader.plan, pool, stage, decode_worker, push=False)
        say, failed = partial(self.send, reader), partial(self._pack_failed, reader)
        return LentPieces(stage, images, reader.key, packed=True, say=say, failed=failed)

    def _pack_failed(self, reader: Reader, request: str, cause: Exception) -> None:
        """Fail a request that cannot be packed. Its reader then returns the piece."""
        error = cause if isinstance(cause, KvplanError) else TransferError(cause_text(cause))
        logs.event(logs.WARNING, "pack failed", request=request, reader=reader.key, error=error)
        self.core.state.fail(reader, request, error)

    def _compare(self, asked: effects.Compare) -> None:
        reader, done = asked.reader, asked.done
        task = partial(compare, reader.plan, reader.claimant.worker, self._endpoint.pool, done, asked.named)
        self._comparisons.start((reader, done.request), task)

    def _write_failed(self, failed: effects.WriteFailed) -> None:
        key, error = failed.key, failed.error
        logs.event(logs.WARNING, "push failed", request=key.request, reader=key.reader.key, error=error)
        if failed.ends:
            self._counters.add("failures", reason=error.code)

    def _buffer(self, buffer: effects.Buffer) -> None:
        reader, message = buffer.key, buffer.message
        try:
            kind = self._buffered(reader, message)
        except KvplanError as error:
            kind = MessageKind.UNEXPECTED
            self.core.state.fail(reader, message.request, error)
        except UNFORESEEN as error:
            self.core.readers.drop_malformed(reader, unforeseen(message, error))
            return
        self._counters.add("messages", kind=kind)

    def _buffered(self, reader: Reader, message: wire.Buffers) -> MessageKind:
        if isinstance(message, wire.AskBuffer):
            self.packs.want(reader, message)
            return MessageKind.BUFFER_ASKED
        if isinstance(message, wire.ReturnBuffer):
            return MessageKind.BUFFER_RETURNED if self.packs.give_back(reader, message) else MessageKind.DUPLICATE
        stage = self.peers.stage(reader)
        known = stage is not None and stage.lent(message.request, message.number, message.address)
        return MessageKind.LENT if known else MessageKind.DUPLICATE

    def _reader_left(self, left: effects.ReaderLeft) -> None:
        self.packs.leave(left.reader, left.request)
        self._comparisons.drop((left.reader, left.request))

    def _end(self, ended: effects.RequestEnded) -> None:
        self.watched.end(ended.request)
        for reader in list(self.packs.all):
            self.packs.leave(reader, ended.request)

    def _drop(self, drop: effects.Drop) -> None:
        logs.event(logs.INFO, "peer dropped", reader=drop.reader.key, why=drop.why)
        self.packs.leave(drop.reader)
        self.peers.remove(drop.reader)
        self._server.forget(drop.reader.identity)
