"""Prefill driver: carries out what the prefill core decides, and tells it what came of that.

It has the sockets, the transport, the stage and the threads, and knows no phase of anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.checksum.background import ChecksumThread
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import Hello, WorkerCard
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.handshake_server import PrefillFace
from kvplan.runtime.errors import CardError, PeerLostError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.ops import logs
from kvplan.runtime.ops.metrics import Counters, MessageKind
from kvplan.runtime.prefill.buffers import BufferMessages
from kvplan.runtime.prefill.events import Completed, WatchedRequests
from kvplan.runtime.prefill.greeting import Greeter
from kvplan.runtime.prefill.mover import WriteMover
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.prefill.peers import ReaderPeers
from kvplan.runtime.prefill.verify import compare
from kvplan.runtime.protocol import prefill_effects as effects
from kvplan.runtime.protocol.effects import Counted, Input, Output, Send, Unsent
from kvplan.runtime.protocol.leases import LeaseEvent, Released
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.transfer.executor import ExecutorContext

MOST_EVENTS = 1 << 14


class PrefillDriver:
    """The I/O of one prefill worker, with one registration of its memory. Its worker's owner alone calls it.

    `free` takes what is released. `forget` has the transport forget a peer, unless something else needs it.
    Peers are shown `face`.
    """

    def __init__(
        self,
        core: PrefillCore,
        pool: Pool,
        context: ExecutorContext,
        server: ControlServer,
        counters: Counters,
        clock: Callable[[], float],
        free: Callable[[Released], None],
        forget: Callable[[str], None],
        face: Callable[[], PrefillFace],
    ) -> None:
        self.core, self.events = core, deque[LeaseEvent](maxlen=MOST_EVENTS)
        # What came of outputs: the core hears it in this turn.
        self._came = list[Input]()
        self.peers = ReaderPeers(pool, context.transport, self.send, self._flush, context.stage, forget)
        self.packs = PagePacks(pool, context.stage, context.transport, self.send)
        self.mover = WriteMover(context, counters, self.peers.links, self._came.append)
        self.watched, self._greeter = WatchedRequests(), Greeter(pool, self.peers, self.packs, self._turn, face)
        self._pool, self._server, self._counters = pool, server, counters
        self._clock, self._now = clock, 0.0
        self._comparisons = ChecksumThread[tuple[Reader, str], effects.ChecksumsCompared]()
        self._unsaid = set[tuple[Reader, str | None]]()
        self._rejected: KvplanError | None = None
        self._acts: dict[type[Output], Callable[[Any], object]] = {
            Counted: self._count,
            Send: lambda output: self.send(output.peer, output.message),
            effects.Reply: lambda output: server.send(output.identity, output.message),
            effects.Note: self._note,
            effects.WriteFailed: self._write_failed,
            effects.MoveWrite: self.mover.move,
            effects.StopWrite: self.mover.stop,
            effects.Pass: BufferMessages(self.packs, self.peers, counters, self._came.append).act,
            effects.LeaveBuffers: lambda output: self.packs.leave(output.reader, output.request),
            effects.Compare: self._compare,
            effects.StopComparing: lambda output: self._comparisons.drop((output.reader, output.request)),
            effects.RequestEnded: self._end,
            effects.Free: lambda output: free(output.released),
            effects.Drop: self._drop,
            effects.Rejected: self._reject,
        }

    @property
    def busy(self) -> bool:
        """Whether anything is under way: an event that is waited for, a claim, a write or a comparison."""
        return bool(self.core.busy or self.watched.pending() or len(self.packs))

    def command(self, *commands: Input) -> None:
        """Have the core carry out a caller's commands. Raises what the core says against one."""
        self._now, self._rejected = self._clock(), None
        self._turn(*commands)
        if self._rejected is not None:
            raise self._rejected

    def hear(self, identity: bytes, message: Any, now: float) -> None:
        """Act upon one message; who says hello is shown the face. Nothing that it says can raise."""
        self._now, reader = now, self.peers.get(identity)
        if isinstance(message, CardError):
            self.note(LeaseEvent(MessageKind.MALFORMED, text=str(message)))
        elif isinstance(message, Hello):
            answer = self._greeter.greet(identity, message)
            if isinstance(answer, WorkerCard):
                self._server.lines.meet(identity, message)
            self._server.send(identity, answer)
        elif reader is None:
            self._turn(effects.Stranger(identity, message))
        else:
            error = self._reach(reader, message) if isinstance(message, wire.WriteRequest) else None
            self._turn(effects.ReaderHeard(reader, message, error))

    def step(self, now: float, completed: Completed, expire: bool) -> None:
        """One round: announce what is there, write, answer those whose checksums were compared. Leases may `expire`."""
        self._now = now
        self._came.extend(self.watched.inputs(completed))
        behind = {reader for identity in self._server.behind() if (reader := self.peers.get(identity)) is not None}
        self._came.append(effects.Round(behind, self.packs.borrowers(), not self.packs.stuck))
        if expire:
            self._came.append(effects.Expire())
        self._turn()
        self.packs.step()
        self._came.extend(self._comparisons.take_all())
        self.follow()
        self.peers.sweep(self.mover.busy)

    def follow(self) -> None:
        """Follow what is being written."""
        self.mover.step()
        if self._came:
            self._turn()

    def send(self, reader: Reader, message: msgspec.Struct) -> None:
        """Have `say` say it. The core hears if that cannot be."""
        request = getattr(message, "request", None)
        unsaid = self._unsaid and not self._unsaid.isdisjoint({(reader, request), (reader, None)})
        if unsaid or self.peers.get(reader.identity) is not reader:
            return
        try:
            sent = self._server.send(reader.identity, message)
        except CardError as error:
            logs.event(logs.WARNING, "message too large", client=reader.key, error=error)
            self._unsaid.add((reader, request))
            self._came.append(Unsent(reader, message, error))
            return
        if not sent:
            self._unsaid.add((reader, None))
            self._came.append(Unsent(reader, message, PeerLostError("its line is broken, or has been full for long")))

    def say(self) -> None:
        """Say what was sent in this round, to each reader in one message."""
        self._flush()
        if self._came:
            self._turn()

    def note(self, event: LeaseEvent, count: int = 1) -> None:
        """Something came that is no step of the protocol."""
        self.events.append(event)
        self._counters.add("messages", count, kind=event.kind)

    def close(self) -> None:
        """Forget everybody; comparisons end."""
        self._turn(effects.Close())
        self._comparisons.close()
        self.peers.sweep(self.mover.busy)

    def _turn(self, *inputs: Input) -> None:
        """Tell the core what happened, and what comes of that, until nothing more does."""
        self._came.extend(inputs)
        while self._came:
            came = list(self._came)
            self._came.clear()
            outputs = self.core.step(self._now, came)
            # What could not be said is said no more of, until the core has heard that.
            self._unsaid.clear()
            for output in outputs:
                self._acts[type(output)](output)

    def _flush(self) -> None:
        for identity in self._server.flush():
            if (reader := self.peers.get(identity)) is not None:
                self._came.append(effects.Unheard(reader, "its line is broken"))

    def _reach(self, reader: Reader, message: wire.WriteRequest) -> KvplanError | None:
        """Why a reader that wants to be written to cannot be reached, if its connection has broken."""
        if (stage := self.peers.stage(reader)) is not None:
            stage.lends = message.lends
        try:
            self.peers.reach(reader)
        except KvplanError as error:
            return error
        return None

    def _reject(self, rejected: effects.Rejected) -> None:
        self._rejected = rejected.error

    def _count(self, counted: Counted) -> None:
        for kind, count in counted.kinds.items():
            self._counters.add("messages", count, kind=kind)

    def _write_failed(self, failed: effects.WriteFailed) -> None:
        key, error = failed.key, failed.error
        logs.event(logs.WARNING, "push failed", request=key.request, client=key.reader.key, error=error)
        if failed.ends:
            self._counters.add("failures", reason=error.code)

    def _note(self, note: effects.Note) -> None:
        if note.counted:
            self.note(note.event)
        else:
            self.events.append(note.event)

    def _compare(self, asked: effects.Compare) -> None:
        self._comparisons.start((asked.reader, asked.done.request), partial(compare, self._pool, asked))

    def _end(self, ended: effects.RequestEnded) -> None:
        self.watched.end(ended.request)
        self.packs.end(ended.request)

    def _drop(self, drop: effects.Drop) -> None:
        logs.event(logs.INFO, "peer dropped", client=drop.reader.key, reason=drop.why)
        self.packs.drop(drop.reader)
        self.peers.remove(drop.reader)
        self._server.forget(drop.reader.identity)
