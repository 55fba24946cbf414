"""Transfer: one request on its way, as its caller sees it: polled, waited for, awaited, called back, or as an event."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from kvplan.plan.errors import KvplanError, RequestError
from kvplan.plan.request import Request
from kvplan.plan.types import Ints
from kvplan.runtime.decode.outcome import Arrived, Outcome, TransferState, outcome
from kvplan.runtime.decode.phases import TRANSFER, Event, Phase
from kvplan.runtime.errors import EXITS, CancelledTransferError, HandleError
from kvplan.runtime.ops import logs
from kvplan.runtime.transfer.demand import NOTHING, Demand

if TYPE_CHECKING:
    from kvplan.runtime.checksum.checksum import Sample
    from kvplan.runtime.decode.engines import PrefillConnection, PrefillEngine
    from kvplan.runtime.decode.unpacks import PageUnpacks
    from kvplan.runtime.transfer.chunks import ChunkCover
    from kvplan.runtime.transfer.executor import Slice, TransferExecutor

PHASE: Callable[[PeerProgress], Phase] = attrgetter("phase")
# Logical decode block ids by group.
WrittenBlocks = Mapping[str, Ints]


@dataclass(slots=True, eq=False)
class PeerProgress:
    """The part of one prefill worker in a transfer: its phase, and what moves or may still move.

    `count` tells how many bytes come from it, as the plan has them, `unpacks` are the pieces that it writes by way of
    the stage. `pin` is the number that the worker gave, and `heartbeat` that of the claim that named its blocks:
    answers to earlier ones are not to this transfer. `unheld` says that the worker answered that it does not hold the
    request yet. `cover` and `offers` are the chunks that have come and their number, `written` the bytes that the
    worker says it wrote. `writes` says that it was asked to write and has not stopped; `slices` are reads that were
    under way when the transfer failed, `unsaid` says that the worker is still to be told so. `lingers` are the seconds
    for which what was sent may still land, None while more may be sent.
    """

    connection: PrefillConnection
    count: Callable[[], int]
    unpacks: PageUnpacks
    phase: Phase = Phase.CLAIMING
    pin: int | None = None
    heartbeat: int = 0
    unheld: bool = False
    executor: TransferExecutor | None = None
    cover: ChunkCover | None = None
    offers: int = 0
    written: int = 0
    writes: bool = False
    slices: list[Slice] = field(default_factory=list)
    unsaid: bool = False
    lingers: float | None = None
    _expected: int | None = field(init=False, default=None)

    def on(self, event: Event) -> None:
        """The next phase. Raises PhaseError."""
        self.phase = TRANSFER.after(self.phase, event)

    def stopped(self) -> None:
        """The worker does not write any more, by its own word or because it is gone."""
        self.on(Event.STOPPED)
        self.writes = self.unsaid = False
        self.lingers = None

    def wrote(self, size: int) -> None:
        """The worker says that it has written all, of so many bytes."""
        self._expected = self.written = max(0, size)

    @property
    def expected(self) -> int:
        """Bytes that come from the worker. They are counted when somebody first asks: few do."""
        if self._expected is None:
            self._expected = self.count()
        return self._expected

    @property
    def arrived(self) -> int:
        """Bytes that are there."""
        return self.written if self.executor is None else self.executor.moved

    @property
    def fed(self) -> bool:
        """Whether bytes may be on their way, by the wire or from the stage: nobody tells when they have come."""
        if self.executor is not None:
            return self.executor.touching
        return bool(self.unpacks) or (self.writes and self.phase is Phase.MOVING)

    @property
    def placed(self) -> bool:
        """Whether nothing of it is in the stage, or still to be read."""
        return not self.unpacks and (self.executor is None or self.executor.done)

    @property
    def progress(self) -> float:
        if Phase.MOVED <= self.phase <= Phase.CONFIRMED:
            return 1.0
        return self.arrived / self.expected if self.expected else 0.0

    @property
    def descriptors(self) -> int:
        return 0 if self.executor is None else self.executor.descriptors

    @property
    def posted(self) -> int | None:
        return 0 if self.executor is None else self.executor.posted


class TransferWorker(Protocol):
    """The worker of a transfer."""

    @property
    def driven(self) -> bool: ...

    def run_once(self) -> bool: ...

    def ask_batched(self) -> None: ...

    def wait(self, transfer: Transfer) -> None: ...

    def cancel(self, transfer: Transfer, error: RequestError) -> None: ...

    def exit(self, error: BaseException) -> None: ...


def _running() -> Future[None]:
    """A future that nobody can cancel."""
    future = Future[None]()
    future.set_running_or_notify_cancel()
    return future


@dataclass(slots=True, eq=False)
class Transfer:
    """One request and how far it is. `state` is running, done, failed, cancelled or expired; `error` then says why.

    `future` is done after the step in which it ended.

    `deadline` is by the worker's clock, and so is `held_by`, until when prefill has to hold it. `written` are the
    decode blocks that it writes, by group. `engine` and `parts`, one for each prefill worker that the plan names, are
    there once it is begun.
    """

    request: Request
    deadline: float
    began: float
    worker: TransferWorker = field(repr=False)
    streamed: bool = False
    sample: Sample | None = None
    held_by: float = math.inf
    attempt: int = 0
    state: TransferState = TransferState.RUNNING
    error: KvplanError | None = None
    engine: PrefillEngine = field(init=False, repr=False)
    demand: Demand = field(default=NOTHING, repr=False)
    parts: tuple[PeerProgress, ...] = field(default=(), repr=False)
    written: WrittenBlocks = field(default_factory=dict, repr=False)
    future: Future[None] = field(default_factory=_running, repr=False)

    @property
    def ended(self) -> bool:
        return self.state is not TransferState.RUNNING

    @property
    def phase(self) -> Phase:
        """How far it is with the prefill worker that it is least far with."""
        return min(map(PHASE, self.parts), default=Phase.CONFIRMED)

    @property
    def placed(self) -> bool:
        """Whether all that was read is in its place."""
        return all(part.placed for part in self.parts)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it runs."""
        if not self.ended:
            return None
        return Arrived(self.bytes) if self.error is None else outcome(self.error)

    @property
    def untrusted(self) -> dict[str, tuple[int, ...]]:
        """Decode block ids by group that may hold anything, after any end but done."""
        end = self.outcome
        return {} if end is None or isinstance(end, Arrived) else dict(end.untrusted)

    @property
    def bytes(self) -> int:
        """Bytes that have arrived."""
        return sum(part.arrived for part in self.parts)

    @property
    def total(self) -> int:
        """Bytes that the request comes to on this worker."""
        return sum(part.expected for part in self.parts)

    @property
    def progress(self) -> float:
        """From 0 to 1, which only a request that is done reaches: by bytes, each prefill worker counting alike."""
        if self.state is TransferState.DONE:
            return 1.0
        shares = [part.progress for part in self.parts]
        return min(0.999, sum(shares) / len(shares)) if shares else 0.0

    @property
    def descriptors(self) -> int:
        """Descriptors that the transport was predicted to post so far."""
        return sum(part.descriptors for part in self.parts)

    @property
    def posted(self) -> int | None:
        """Descriptors that the transport counted, None where it does not count."""
        counts = [part.posted for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    def query(self) -> bool:
        """Whether everything has arrived; the face of an event, as `offer` takes one. Raises the error."""
        try:
            self.poll()
        except EXITS as error:
            # Of somebody's callback: who asks for an event is not to fail for it.
            self.worker.exit(error)
        return self.ended and self._result() is self

    def poll(self) -> bool:
        """Whether this transfer has ended. If nobody else does, carry out one step of its worker first."""
        if not (self.ended or self.worker.driven):
            self.worker.run_once()
        return self.ended

    def wait(self) -> Transfer:
        """Block until the end, which the deadline bounds. Raises the transfer's error."""
        self.worker.wait(self)
        return self._result()

    def __await__(self) -> Generator[Any, None, Transfer]:
        import asyncio

        self.worker.ask_batched()
        if not (self.ended or self.worker.driven):
            text = "call start(), or have the loop call run_once when fileno() is readable"
            raise HandleError(f"nobody carries out the work of request {self.request.id}: {text}")
        try:
            yield from asyncio.wrap_future(self.future).__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._result()

    def on_end(self, callback: Callable[[Transfer], None]) -> None:
        """Call `callback` with this transfer when it has ended, in the thread that carried out its last step.

        At once if it has ended.
        """
        if self.future.done():
            callback(self)
        else:
            self.future.add_done_callback(partial(_tell, callback, self))

    def cancel(self) -> None:
        """Give the request up. Its blocks stay in quarantine while a write may still land."""
        self.worker.cancel(self, CancelledTransferError(f"request {self.request.id} was cancelled"))

    def _result(self) -> Transfer:
        if self.error is not None:
            raise self.error
        return self


def _tell(callback: Callable[[Transfer], None], transfer: Transfer, _: Future[None]) -> None:
    try:
        callback(transfer)
    except EXITS as error:
        transfer.worker.exit(error)
    except BaseException:
        logs.failure("callback failed", request=transfer.request.id)
