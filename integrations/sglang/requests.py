"""Requests of SGLang's in progress: one that a prefill worker sends, and one that a decode worker receives.

Nothing here waits. `poll` returns the state of a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy.typing as npt

from kvplan.integrations.sglang.aux import AuxRows
from kvplan.integrations.sglang.bootstrap import lookup, named_worker
from kvplan.integrations.sglang.states import RoomState
from kvplan.integrations.sglang.tables import RequestTables
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.meetings import PrefillMeetings, trusted
from kvplan.integrations.shared.names import AGAIN, REMADE, again, held_name, prompt_digest, salted
from kvplan.integrations.shared.note import read_note
from kvplan.plan.errors import KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.errors import CancelledTransferError, HandshakeError, LeaseError, WithdrawnError
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.events import ComputeEvent
from kvplan.runtime.prefill.worker import PrefillWorker

Components = Sequence[Any] | None


class HeldRequests:
    """The requests that a prefill worker holds, and the reasons why their holds ended."""

    def __init__(self, worker: PrefillWorker, tables: RequestTables, aux: AuxRows) -> None:
        self.worker, self.tables, self.aux = worker, tables, aux
        self._why: dict[str, str] = {}
        self._held: set[str] = set()

    def open(self, name: str, tokens: int) -> None:
        self.worker.open(name, (0, tokens))
        self._held.add(name)

    def ended(self, name: str) -> str:
        """Return the reason why a request's hold ended; empty until its blocks are free."""
        for one in self.worker.released():
            if one.request in self._held:
                self._why[one.request] = one.why
        return self._why.get(name, "")

    def forget(self, name: str) -> None:
        self._held.discard(name)
        self._why.pop(name, None)


class SentRequest:
    """One request of a prefill worker. SGLang computes it in chunks, and reports each chunk."""

    state: RoomState
    error: KvplanError | None

    def __init__(self, held: HeldRequests, room: int) -> None:
        self._held, self._room, self._name = held, room, str(room)
        self._row, self._tokens, self._sent = 0, 0, 0
        self._opened = False
        self.state, self.error = RoomState.WAITING, None

    def tell_prompt(self, tokens: Sequence[int], salt: str = "") -> None:
        """Set the prompt, because SGLang's own interface only counts pages."""
        self._tokens, self._name = len(tokens), room_name(self._room, tokens, salt)

    def tell_length(self, tokens: int) -> None:
        """Set how many tokens of the prompt are computed here. The request keeps the name of the whole prompt."""
        self._tokens = tokens

    def begin(self, row: int) -> None:
        """Open the request. `row` is the row of its auxiliary data."""
        self._row, self.state = row, RoomState.TRANSFERRING
        try:
            self._held.open(self._name, self._tokens)
            self._opened = True
        except KvplanError as error:
            self._fail(error)

    def offer(
        self,
        pages: npt.ArrayLike,
        components: Components,
        tokens: int,
        *,
        last: bool,
        after: ComputeEvent | None = None,
    ) -> None:
        """Offer `tokens` more computed tokens, once `after` has completed. The `last` offer has the auxiliary data."""
        if self.state is not RoomState.TRANSFERRING or self.error is not None:
            return
        first, end = self._sent, min(self._tokens, self._sent + tokens)
        self._sent = end
        tables = self._held.tables.chunk((first, end), pages)
        if last:
            tables |= self._held.tables.states(components, end)
        try:
            note = self._held.aux.read(self._row).encode() if last else b""
            self._held.worker.offer(self._name, (first, end), tables, last=last, after=after, note=note)
        except KvplanError as error:
            self._give_up(error)

    def poll(self) -> RoomState:
        if self._opened and (why := self._held.ended(self._name)):
            self._opened = False
            self._held.forget(self._name)
            if why == "finished" and self.error is None:
                self.state = RoomState.SUCCESS
            else:
                # A lease that ended is the cause of whatever was refused after it.
                self._fail(_freed_early(self._name, why) if self.error is None or why == "expired" else self.error)
        return self.state

    def abort(self) -> None:
        """Give the request up. It has failed once no decode worker can still read it."""
        if self.state in (RoomState.FAILED, RoomState.SUCCESS):
            return
        error = WithdrawnError(f"request {self._name} was aborted")
        if self._opened:
            self._give_up(error)
        else:
            self._fail(error)

    def _give_up(self, error: KvplanError) -> None:
        """Withdraw the request. `poll` fails it once its pages are free: decode may still read them."""
        self.error = self.error or error
        try:
            self._held.worker.withdraw(self._name)
        except KvplanError as refusal:
            logs.event(logs.WARNING, "request not withdrawn", request=self._name, error=refusal)

    def _fail(self, error: KvplanError) -> None:
        self.state, self.error = RoomState.FAILED, error


def room_name(room: int, tokens: Sequence[int], salt: str) -> str:
    """Return the name by which the workers of both engines know a request: its room, and its prompt."""
    return held_name(str(room), prompt_digest(tokens, [salted(salt)] if salt else ()))


def _freed_early(name: str, why: str) -> KvplanError:
    text = f"request {name}: blocks freed early ({why})"
    return LeaseError(text) if why == "expired" else WithdrawnError(text)


class EngineMeetings:
    """The prefill engines that a decode worker meets, by the bootstrap address that the router names."""

    def __init__(self, worker: DecodeWorker, config: ConnectorConfig, threads: Executor) -> None:
        self._worker, self._config, self._threads = worker, config, threads
        self._meetings = PrefillMeetings(worker)

    def meeting(self, where: str) -> Future[Peer]:
        """Return the meeting with the engine at HOST:PORT, or of a named worker; the existing one if it lasts."""
        return self._meetings.meeting(where, partial(self._threads.submit, self._meet, where))

    def _meet(self, where: str) -> Peer:
        """Ask, on a thread, for the address of the engine's first worker, and connect to it. Raises KvplanError."""
        if (record := named_worker(where)) is None:
            self._check(where)
            record = lookup(where, self._config.connect)
        self._check(record.address.removeprefix("tcp://"))
        key = trusted(self._worker.keys, record.key, f"the prefill engine at {record.address}")
        return self._worker.connect(record.address, self._config.connect, key, self._config.mode)

    def _check(self, where: str) -> None:
        if why := self._config.refuses(where.rpartition(":")[0]):
            raise HandshakeError(why)


@dataclass(frozen=True, slots=True)
class Receiving:
    """The shared parts of a decode worker's requests. Each has to arrive in `timeout` seconds."""

    worker: DecodeWorker
    engines: EngineMeetings
    tables: RequestTables
    aux: AuxRows
    timeout: float


class ReceivedRequest:
    """One request of a decode worker, from the prefill engine whose bootstrap address the router names."""

    state: RoomState
    error: BaseException | None

    def __init__(self, shared: Receiving, where: str, room: int) -> None:
        self._shared, self._where, self._room, self._name = shared, where, room, str(room)
        self._meeting: Future[Peer] | None = None
        self._transfer: Transfer | None = None
        self._asked: Request | None = None
        self._after: ComputeEvent | None = None
        self._row, self._tokens, self._aborted = 0, 0, False
        self.state, self.error = RoomState.BOOTSTRAPPING, None

    def tell_prompt(self, tokens: Sequence[int], salt: str = "") -> None:
        """Set the prompt, because SGLang's own interface only counts pages."""
        self._tokens, self._name = len(tokens), room_name(self._room, tokens, salt)

    def begin(self) -> None:
        """Meet the prefill engine."""
        self._meeting = self._shared.engines.meeting(self._where)

    def receive(
        self, pages: npt.ArrayLike, components: Components, prefix: int, row: int, after: ComputeEvent | None = None
    ) -> None:
        """Request the transfer of all tokens behind a local prefix, once `after` has completed.

        Its auxiliary data goes to `row`. Until `after`, a running step may still write the pages for their earlier
        owner.
        """
        self._row, tables, whole = row, self._shared.tables, (prefix, self._tokens)
        ours = tables.chunk(whole, pages) | tables.states(components, self._tokens)
        self._asked, self._after = Request(self._name, whole, {}, ours), after
        self.state = RoomState.TRANSFERRING
        self._open()

    def poll(self) -> RoomState:
        if self.state is RoomState.BOOTSTRAPPING:
            self._meet()
        elif self.state is RoomState.TRANSFERRING:
            self._move()
        return self.state

    def abort(self) -> None:
        """Give the request up. The pages of one in transfer may be written until it is `settled`."""
        self._aborted = True
        if self._transfer is not None:
            self._transfer.cancel()
        elif self.state is not RoomState.FAILED:
            self._release()
            self._fail(CancelledTransferError(f"request {self._name} was aborted"))

    def close(self) -> None:
        """Forget the request, whose pages have settled. If it failed, prefill frees what this worker did not take."""
        if self._transfer is not None and self._transfer.error is not None:
            self._release()

    @property
    def settled(self) -> bool:
        """Whether nothing can write to its pages."""
        return self._transfer is None or self._shared.worker.settled(self._transfer)

    def _peer(self) -> str:
        """Return the name of the engine that was met."""
        assert self._meeting is not None
        return self._meeting.result().name

    def _meet(self) -> None:
        if self._meeting is None or not self._meeting.done():
            return
        if (error := self._meeting.exception()) is None:
            self.state = RoomState.WAITING
        else:
            self._fail(error)

    def _open(self) -> None:
        """Ask for the request once the device has reached its event."""
        if self._asked is not None and (self._after is None or self._after.query()):
            self._transfer = self._shared.worker.open(self._asked, self._shared.timeout, peer=self._peer())
            self._asked = self._after = None

    def _move(self) -> None:
        self._open()
        transfer = self._transfer
        if transfer is None or not transfer.ended:
            return
        if transfer.error is None:
            self._arrive(transfer.note)
        elif not self._is_retryable(transfer.error):
            # SGLang answers the client now, and keeps the pages until they settle (`is_abort_release_safe`).
            self._fail(transfer.error)
        elif self.settled:
            self._retry(transfer.request)

    def _is_retryable(self, error: BaseException) -> bool:
        """Whether a named engine may compute the prompt again, which is asked of it once."""
        first = not self._name.endswith(AGAIN) and named_worker(self._where) is not None
        return first and not self._aborted and isinstance(error, LeaseError | WithdrawnError)

    def _retry(self, request: Request) -> None:
        """Ask once more, by the second name."""
        self._name = again(self._name)
        request = replace(request, id=self._name)
        self._transfer = self._shared.worker.open(request, self._shared.timeout, peer=self._peer(), wait=REMADE)

    def _arrive(self, note: bytes) -> None:
        try:
            self._shared.aux.write(self._row, read_note(note), self._room)
            self.state = RoomState.SUCCESS
        except KvplanError as error:
            self._fail(error)

    def _release(self) -> None:
        """Tell prefill to free its pages. If that fails, its lease ends the hold."""
        if self._meeting is not None and self._meeting.done() and self._meeting.exception() is None:
            self._shared.worker.submit(Request(self._name, (0, 0), {}, {}), self._shared.timeout, peer=self._peer())

    def _fail(self, error: BaseException) -> None:
        logs.event(logs.WARNING, "request failed", request=self._name, error=error)
        self.state, self.error = RoomState.FAILED, error
