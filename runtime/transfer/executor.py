"""Transfer executor: what one worker moves to or from one peer for one request, slice by slice, within limits.

A slice waits for the limits, is posted, and is over when every handle of it is. One that goes by way of a stage waits
for a buffer, too, and is over when its bytes are in their place. After a failure nothing more is posted. Small slices
that may begin at the same time over one link, of whatever requests, are posted as one transfer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from kvplan.plan.types import Runs
from kvplan.runtime.errors import PeerLostError
from kvplan.runtime.inspection import SliceState
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import LentMove
from kvplan.runtime.staging.staged import StagedMove
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import Meter
from kvplan.runtime.transfer.gather import GatheredSpans, IndexScratch, gather, gather_staged
from kvplan.runtime.transfer.limits import AdmissionQueue
from kvplan.runtime.transfer.posts import (
    WHOLE,
    TransferPart,
    begun_nothing,
    ended,
    over,
    parts,
    post_load,
    release,
    shares,
)
from kvplan.runtime.transfer.prepare import PreparedLink
from kvplan.runtime.transport.base import TransferHandle, Transport, is_lost

# Bytes of a slice that is posted together with others, and of all of them: who waits for one waits for all. Each post
# waits for Python's lock when it returns, up to 5 ms while an engine computes, which is what 32 MiB take at 6 GiB/s.
SMALL, TOGETHER = 4 << 20, 32 << 20
# Slices of a request whose loads are gathered before it may move: more would hold up who waits for the answer.
FORESEEN = 4


class SliceStage(Enum):
    """What a slice waits for, in this order: the limits and its turn, a buffer, its handles."""

    LIMITED = auto()
    STAGED = auto()
    POSTED = auto()


BEGUN = SliceStage.STAGED, SliceStage.POSTED


@dataclass(slots=True, eq=False)
class Slice:
    """A part of what is moved, of `size` bytes. `handles` are those in progress, None for one that failed when posted.

    `staged` is its way through the stage, None where its bytes go straight to their place. `load` is what to post for
    it alone, where that was gathered before it may begin. `part` is which part it is of the transfers that it shares
    with other slices, `posted` what the transport counted of these.
    """

    executor: TransferExecutor
    number: int
    link: PreparedLink
    runs: Mapping[str, Runs]
    size: int
    staged: StagedMove | LentMove | None = None
    load: GatheredSpans | None = None
    stage: SliceStage = SliceStage.LIMITED
    handles: list[TransferHandle | None] = field(default_factory=list)
    part: TransferPart = WHOLE
    posted: int | None = 0

    @property
    def moved(self) -> int:
        """Bytes of it that were asked for."""
        return self.size if self.staged is None else self.staged.piece.moved

    @property
    def off_the_wire(self) -> bool:
        """Whether its bytes were read, of one that is copied from a stage afterwards."""
        return self.stage is SliceStage.POSTED and not self.handles

    @property
    def touching(self) -> bool:
        """Whether anything of it may be copied now, by the wire or here."""
        return bool(self.handles) or (self.staged is not None and self.staged.copying)

    def settled(self) -> bool:
        """Whether a slice of a stopped executor can touch nothing any more: done, or its connection is lost."""
        peer = self.link.peer
        self.handles = [handle for handle in self.handles if not over(peer, handle)]
        if self.handles and not self.link.push and is_lost(self.executor.transport, peer):
            self.handles = [handle for handle in self.handles if not ended(peer, handle)]
        return not self.touching


# What was cut of which link, which way each of its reads was to go.
Foreseen = tuple[PreparedLink | None, tuple[bool, ...], list[Slice]]
NOTHING_FORESEEN: Foreseen = (None, (), [])


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """What slices are moved with: shared by all executors of a worker. `numbers` tell their slices apart."""

    transport: Transport
    admission: AdmissionQueue[Slice]
    scratch: IndexScratch
    slice_bytes: int
    stage: Stage | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def inspected(self) -> tuple[SliceState, ...]:
        """Every slice that waits or moves."""
        found = self.admission.tokens()
        return tuple(SliceState(slice_.executor.request, slice_.stage.name.lower()) for slice_ in found)

    def begin(self) -> None:
        """Begin slices that may be: of `slice_bytes` bytes in all, or one, since a post may copy before it returns."""
        if self.stage is not None:
            self.stage.begin()
        if admitted := self.admission.admit(self.slice_bytes):
            self.post(admitted)

    def post(self, admitted: Sequence[Slice]) -> None:
        """Post slices that the limits allow, but for those that are not wanted any more."""
        for slice_ in admitted:
            if not slice_.executor.has(slice_):
                self.admission.done(slice_)
        for group in groups([slice_ for slice_ in admitted if slice_.executor.has(slice_)]):
            self._post([slice_ for slice_ in group if slice_.executor.has(slice_)])

    def issue_staged(self, slice_: Slice, staged: StagedMove | LentMove) -> None:
        """Post a slice through the buffer that it has."""
        self._issue([slice_], _load_of(slice_, self.scratch).shifted(staged.address, local=not staged.at_peer))

    def _post(self, group: list[Slice]) -> None:
        """Post slices of one link as one transfer; one that is staged is alone, and waits for a buffer."""
        if group and group[0].staged is not None:
            group[0].stage = SliceStage.STAGED
            group[0].executor.post_staged(group[0])
            return
        try:
            load = self._gathered(group) if group else None
        except Exception as error:
            self._apart(group, error)
            return
        if load is not None:
            self._issue(group, load)

    def _gathered(self, group: list[Slice]) -> GatheredSpans:
        if len(group) == 1:
            return _load_of(group[0], self.scratch)
        return gather(group[0].link, joined([slice_.runs for slice_ in group]), self.scratch)

    def _apart(self, group: list[Slice], error: Exception) -> None:
        """What cannot be gathered for all is for each of them, so that who is at fault fails alone."""
        if len(group) == 1:
            group[0].executor.fail(error)
            return
        for slice_ in group:
            # One that failed may have ended the request of those behind it.
            if slice_.executor.has(slice_):
                self._post([slice_])

    def _issue(self, group: list[Slice], load: GatheredSpans) -> None:
        handles, failure = list[TransferHandle | None](), None
        for slice_ in group:
            slice_.stage = SliceStage.POSTED
        try:
            post_load(self.transport, group[0].link, load, handles)
        except Exception as error:
            failure = error
            if begun_nothing(error):
                handles = [handle for handle in handles if handle is not None]
        held, cut = shares(handles, len(group)), parts([slice_.size for slice_ in group])
        for slice_, own, part in zip(group, held, cut, strict=True):
            slice_.handles, slice_.part = own, part
            meter = slice_.executor.meter
            meter.descriptors += part.of(load.descriptors)
            meter.spans += part.of(load.spans)
        if failure is not None:
            for slice_ in group:
                if slice_.executor.has(slice_):
                    slice_.executor.fail(failure)


class TransferExecutor:
    """Bytes of one request between here and one peer.

    A slice that cannot be moved is told to `fail`, whose owner calls `stop`. Nothing is posted once it is `stopped`;
    slices that may still be copied are then `in_progress`. `complete` says that all that there is to move was added.
    `meter` counts what is moved.
    """

    def __init__(
        self,
        request: str,
        peer: str,
        context: ExecutorContext,
        on_failure: Callable[[Exception], None],
        meter: Meter | None = None,
    ) -> None:
        self.request, self.peer, self.meter = request, peer, meter or Meter()
        self.complete = self.stopped = False
        self.in_progress = list[Slice]()
        self._context, self.fail = context, on_failure
        self._slices: dict[int, Slice] = {}
        # Which reads were staged then, and the slices.
        self._foreseen: Foreseen = NOTHING_FORESEEN

    @property
    def done(self) -> bool:
        """Whether all that there is to move has been moved."""
        return self.complete and not self._slices

    @property
    def read(self) -> bool:
        """Whether nothing more is moved by the wire: what is left is being copied to its place."""
        return self.complete and all(slice_.off_the_wire for slice_ in self._slices.values())

    @property
    def touching(self) -> bool:
        """Whether anything may be copied now, by the wire or here."""
        return any(slice_.touching for slice_ in self._slices.values())

    @property
    def under_way(self) -> bool:
        """Whether anything may still be moved, also after it was given up."""
        return bool(self.in_progress) or any(slice_.stage in BEGUN for slice_ in self._slices.values())

    def add(self, link: PreparedLink, runs: Mapping[str, Runs]) -> None:
        """Move these runs by pair, too. Raises LimitError."""
        (before, ways, foreseen), self._foreseen = self._foreseen, NOTHING_FORESEEN
        alike = before is link and ways == link.ways
        for slice_ in foreseen if alike else self._cut(link, runs):
            self._slices[slice_.number] = slice_
            self._context.admission.want(self.peer, self.request, slice_.size, slice_)

    def foresee(self, link: PreparedLink, runs: Mapping[str, Runs]) -> None:
        """Make now what the next `add`, of the same runs, would make, and what to post first. Raises LimitError."""
        found = self._cut(link, runs)
        for slice_ in found[:FORESEEN]:
            slice_.load = _load_of(slice_, IndexScratch())
        self._foreseen = link, link.ways, found

    def _cut(self, link: PreparedLink, runs: Mapping[str, Runs]) -> list[Slice]:
        if not link.staged:
            return self._cut_direct(link, runs)
        direct, moves = slices.through_stage(link, runs, self.request)
        found = [] if direct is None else self._cut_direct(direct, runs)
        return found + [Slice(self, next(self._context.numbers), link, {}, move.piece.bytes, move) for move in moves]

    def _cut_direct(self, link: PreparedLink, runs: Mapping[str, Runs]) -> list[Slice]:
        pieces = slices.cut(link, runs, self._context.slice_bytes)
        return [Slice(self, next(self._context.numbers), link, piece, size) for piece, size in pieces]

    def has(self, slice_: Slice) -> bool:
        """Whether a slice is still to be moved, or being moved."""
        return self._slices.get(slice_.number) is slice_

    def post_staged(self, slice_: Slice) -> None:
        """Post a slice that goes by way of the stage, if it may be."""
        self._try(self._post_ready, slice_)

    def step(self) -> None:
        """Follow what is posted."""
        for slice_ in list(self._slices.values()):
            if slice_.stage is SliceStage.STAGED and slice_.number in self._slices:
                self.post_staged(slice_)
            posted = slice_.stage is SliceStage.POSTED and slice_.number in self._slices
            if posted and self._try(self._over, slice_):
                self.close(slice_)
                del self._slices[slice_.number]
                self.meter.moved += slice_.moved
                self.meter.count_posted(None if slice_.posted is None else slice_.part.of(slice_.posted))
                if slice_.staged is not None:
                    self._hand_on()

    def _hand_on(self) -> None:
        """A buffer that came back is the next slice's at once: it is copied to while others are posted from here."""
        waiting = (s for s in self._slices.values() if s.stage is SliceStage.STAGED and s.staged and not s.staged.begun)
        if (slice_ := next(waiting, None)) is not None and slice_.staged is not None:
            self._try(slice_.staged.ready)

    def stop(self) -> list[Slice]:
        """Give up: nothing more is posted. Returns the slices that are then `in_progress`, until they settle."""
        self.stopped = True
        self._context.admission.drop_request(self.request, self.peer)
        stopped, self._slices, self._foreseen = list(self._slices.values()), {}, NOTHING_FORESEEN
        for slice_ in stopped:
            if slice_.staged is not None:
                slice_.staged.leave()
        self.in_progress += [slice_ for slice_ in stopped if slice_.touching]
        for slice_ in stopped:
            if not slice_.touching:
                self.close(slice_)
        return self.in_progress

    def reap(self) -> None:
        """Close what can touch nothing any more."""
        for slice_ in [slice_ for slice_ in self.in_progress if slice_.settled()]:
            self.in_progress.remove(slice_)
            self.close(slice_)

    @property
    def transport(self) -> Transport:
        return self._context.transport

    def close(self, slice_: Slice) -> None:
        """A slice is over: its bytes are in flight no more, its buffer goes back."""
        self._context.admission.done(slice_)
        if slice_.staged is not None:
            slice_.staged.release()

    def _try(self, call: Callable[..., Any], *arguments: Any) -> bool:
        """Whether `call` says so; an error is told to the owner."""
        try:
            return bool(call(*arguments))
        except Exception as error:
            self.fail(error)
            return False

    def _post_ready(self, slice_: Slice) -> None:
        """Post a staged slice if it has a buffer with what is to be written; what is read at once is copied at once."""
        assert slice_.staged is not None
        if not slice_.staged.ready():
            return
        self.meter.staged += slice_.staged.piece.bytes
        self._context.issue_staged(slice_, slice_.staged)
        if self.has(slice_):
            self._over(slice_)

    def _over(self, slice_: Slice) -> bool:
        for handle in list(slice_.handles):
            if handle is None or not _poll(slice_, handle):
                return False
            count = handle.descriptors()
            slice_.posted = None if count is None or slice_.posted is None else slice_.posted + count
            slice_.handles.remove(handle)
            handle.release()
        return slice_.staged is None or slice_.staged.arrived()


def _poll(slice_: Slice, handle: TransferHandle) -> bool:
    try:
        return handle.poll()
    except PeerLostError:
        slice_.handles.remove(handle)
        release(slice_.link.peer, handle)
        raise


def groups(ready: Iterable[Slice]) -> list[list[Slice]]:
    """Slices as they are posted, in order: small ones of one link that follow each other together."""
    found: list[list[Slice]] = []
    size = 0
    for slice_ in ready:
        plain = found and slice_.staged is found[-1][0].staged is None
        fits = plain and slice_.link is found[-1][0].link and max(slice_.size, found[-1][0].size) <= SMALL
        if fits and size + slice_.size <= TOGETHER:
            found[-1].append(slice_)
            size += slice_.size
        else:
            found.append([slice_])
            size = slice_.size
    return found


def joined(runs: Sequence[Mapping[str, Runs]]) -> Mapping[str, Runs]:
    """The runs by pair of several slices of one link."""
    return {pair: Runs(*map(np.concatenate, zip(*(one[pair] for one in runs), strict=True))) for pair in runs[0]}


def _load_of(slice_: Slice, scratch: IndexScratch) -> GatheredSpans:
    """What to post for one slice, gathered before or now; of one that is staged, with a buffer at address 0."""
    if slice_.load is not None:
        return slice_.load
    if slice_.staged is not None:
        return gather_staged(slice_.link, slice_.staged.piece)
    return gather(slice_.link, slice_.runs, scratch)


def predict(link: PreparedLink, runs: Mapping[str, Runs], context: ExecutorContext) -> int:
    """Descriptors that moving these runs by pair would post. Raises LimitError."""
    direct, moves = slices.through_stage(link, runs) if link.staged else (link, [])
    pieces = [] if direct is None else slices.cut(direct, runs, context.slice_bytes)
    posted = sum(gather(direct, part, context.scratch).descriptors for part, _ in pieces if direct)
    return posted + sum(gather_staged(link, move.piece).descriptors for move in moves)
