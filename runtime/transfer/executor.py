"""Transfer executor: moves the bytes of one request to or from one peer, slice by slice, within limits.

A slice waits for the limits, is posted, and ends when all its handles are done. A staged slice also waits for a buffer,
and ends when its bytes are in place. After a failure nothing more is posted. Small slices that may begin at the same
time over one link are posted as one transfer, even if they are of different requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from kvplan.plan.types import Runs
from kvplan.runtime.errors import PeerLostError
from kvplan.runtime.inspection import SliceState
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.staging.lent import LentMove
from kvplan.runtime.staging.staged import StagedMove
from kvplan.runtime.transfer import slices
from kvplan.runtime.transfer.demand import Meter
from kvplan.runtime.transfer.gather import GatheredSpans, IndexScratch, gather, gather_staged
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits
from kvplan.runtime.transfer.posts import begun_nothing, ended, over, post_load, release, shares
from kvplan.runtime.transfer.prepared import PreparedLink, PreparedLinks
from kvplan.runtime.transport.base import TransferHandle, Transport, is_lost

# Most bytes of a slice that is posted with others, and of all of them: each waits for all. A post waits for Python's
# lock when it returns, up to 5 ms while an engine computes; 32 MiB take as long at 6 GiB/s.
SMALL, TOGETHER = 4 << 20, 32 << 20
# Slices of a request that are gathered before the request may move. More would delay the reading of the answer.
FORESEEN = 4


class SliceStage(Enum):
    """The stages of a slice, in order, by what it waits for: the limits and its turn, a buffer, its handles."""

    LIMITED = auto()
    STAGED = auto()
    POSTED = auto()


BEGUN = SliceStage.STAGED, SliceStage.POSTED


@dataclass(slots=True, eq=False)
class Slice:
    """A part of a transfer, of `size` bytes. `handles` are those in progress, None for one that failed when posted.

    `staged` is its move through a stage, None if its bytes go directly to their places. `load` are its spans, if they
    were gathered before it may begin.
    """

    executor: TransferExecutor
    link: PreparedLink
    runs: Mapping[str, Runs]
    size: int
    staged: StagedMove | LentMove | None = None
    load: GatheredSpans | None = None
    stage: SliceStage = SliceStage.LIMITED
    handles: list[TransferHandle | None] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """Bytes of it that the request asked for."""
        return self.size if self.staged is None else self.staged.piece.moved

    @property
    def off_the_wire(self) -> bool:
        """Whether the wire has moved all of it; a copy from the stage may still be in progress."""
        return self.stage is SliceStage.POSTED and not self.handles

    @property
    def touching(self) -> bool:
        """Whether any of its bytes may be moving now, by the wire or by a copy."""
        return bool(self.handles) or (self.staged is not None and self.staged.copying)

    def settled(self) -> bool:
        """Return whether a slice of a stopped executor is done or its connection lost, so that it touches nothing."""
        peer = self.link.peer
        self.handles = [handle for handle in self.handles if not over(peer, handle)]
        if self.handles and not self.link.push and is_lost(self.executor.context.transport, peer):
            self.handles = [handle for handle in self.handles if not ended(peer, handle)]
        return not self.touching


# Slices that were cut ahead, their link, and which of its reads were staged then.
Foreseen = tuple[PreparedLink | None, tuple[bool, ...], list[Slice]]
NOTHING_FORESEEN: Foreseen = (None, (), [])


class ExecutorContext:
    """The transport, limits, counters, scratch and stage that all executors of a worker share."""

    def __init__(self, transport: Transport, limits: Limits, counters: Counters, stage: Stage | None = None) -> None:
        self.transport, self.stage, self.slice_bytes = transport, stage, limits.slice_bytes
        self.counters = counters
        self.admission, self.scratch = AdmissionQueue[Slice](limits), IndexScratch()

    def inspected(self) -> tuple[SliceState, ...]:
        """Return the state of every slice that waits or moves."""
        found = self.admission.tokens()
        return tuple(SliceState(slice_.executor.request, slice_.stage.name.lower()) for slice_ in found)

    def begin(self) -> None:
        """Begin admitted slices, of at most `slice_bytes` in all, or one: a post may copy before it returns."""
        if self.stage is not None:
            self.stage.begin()
        if admitted := self.admission.admit(self.slice_bytes):
            self.post(admitted)

    def post(self, admitted: Sequence[Slice]) -> None:
        """Post slices that the limits admit, except those whose executors were stopped."""
        for slice_ in admitted:
            if not slice_.executor.has(slice_):
                self.admission.done(slice_)
        for group in groups([slice_ for slice_ in admitted if slice_.executor.has(slice_)]):
            self._post([slice_ for slice_ in group if slice_.executor.has(slice_)])

    def issue_staged(self, slice_: Slice, staged: StagedMove | LentMove) -> None:
        """Post a staged slice through its buffer."""
        self._issue([slice_], _load_of(slice_, self.scratch).shifted(staged.address, local=not staged.at_peer))

    def _post(self, group: list[Slice]) -> None:
        """Post slices of one link as one transfer. A staged slice is alone, and waits for a buffer first."""
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
        """Post slices one by one after gathering all of them failed, so that only the faulty one fails."""
        if len(group) == 1:
            group[0].executor.fail(error)
            return
        for slice_ in group:
            # The failure of one slice may have stopped the executor of a later one.
            if slice_.executor.has(slice_):
                self._post([slice_])

    def _issue(self, group: list[Slice], load: GatheredSpans) -> None:
        """Post the spans of a group, which count for its first slice: one descriptor may join spans of two slices."""
        handles, failure = list[TransferHandle | None](), None
        for slice_ in group:
            slice_.stage = SliceStage.POSTED
        try:
            post_load(self.transport, group[0].link, load, handles)
        except Exception as error:
            failure = error
        if failure is not None and begun_nothing(failure):
            handles = [handle for handle in handles if handle is not None]
        else:
            group[0].executor.meter.descriptors += load.descriptors
            self.counters.add("posts", load.descriptors)
            self.counters.add("spans", load.spans)
        for slice_, own in zip(group, shares(handles, len(group)), strict=True):
            slice_.handles = own
        if failure is not None:
            for slice_ in group:
                if slice_.executor.has(slice_):
                    slice_.executor.fail(failure)


class MoveEnds(NamedTuple):
    """The ends of a transfer: its `request`, and the `client` whose limits it shares.

    `peer` is the other end's name in the transport. `meter` counts what is moved over `links`.
    """

    request: str
    client: str
    peer: str
    links: PreparedLinks
    meter: Meter


class TransferExecutor:
    """The slices of one transfer between its `ends`.

    `fail` is called with the error of a slice; its owner then calls `stop`. Nothing is posted once it is `stopped`;
    slices whose bytes may still move are then `in_progress`. `complete` says that all runs were added. `lost` says
    that its connection broke.
    """

    def __init__(self, ends: MoveEnds, context: ExecutorContext, fail: Callable[[Exception], None]) -> None:
        self.ends, self.request, self.meter = ends, ends.request, ends.meter
        self.complete = self.stopped = self.lost = False
        self.in_progress = list[Slice]()
        self.context, self.fail = context, fail
        self._slices: dict[Slice, None] = {}
        self._foreseen: Foreseen = NOTHING_FORESEEN

    @property
    def done(self) -> bool:
        """Whether all slices have moved, and no more will be added."""
        return self.complete and not self._slices

    @property
    def read(self) -> bool:
        """Whether the wire has moved all bytes; copies from the stage may still be in progress."""
        return self.complete and all(slice_.off_the_wire for slice_ in self._slices)

    @property
    def touching(self) -> bool:
        """Whether any bytes may be moving now, by the wire or by a copy."""
        return any(slice_.touching for slice_ in self._slices)

    @property
    def under_way(self) -> bool:
        """Whether any bytes may still be moved, even after it was stopped."""
        return bool(self.in_progress) or any(slice_.stage in BEGUN for slice_ in self._slices)

    def add(self, link: PreparedLink, runs: Mapping[str, Runs]) -> None:
        """Add slices that move these runs by pair. Raises LimitError."""
        (before, ways, foreseen), self._foreseen = self._foreseen, NOTHING_FORESEEN
        alike = before is link and ways == link.ways
        for slice_ in foreseen if alike else self._cut(link, runs):
            self._slices[slice_] = None
            self.context.admission.want(self.ends.client, self.request, slice_.size, slice_)

    def foresee(self, link: PreparedLink, runs: Mapping[str, Runs]) -> None:
        """Cut the slices that the next `add` of the same runs needs, and gather the first ones. Raises LimitError."""
        found = self._cut(link, runs)
        for slice_ in found[:FORESEEN]:
            slice_.load = _load_of(slice_, IndexScratch())
        self._foreseen = link, link.ways, found

    def _cut(self, link: PreparedLink, runs: Mapping[str, Runs]) -> list[Slice]:
        if not link.staged:
            return self._cut_direct(link, runs)
        direct, moves = slices.through_stage(link, runs, self.request)
        found = [] if direct is None else self._cut_direct(direct, runs)
        return found + [Slice(self, link, {}, move.piece.bytes, move) for move in moves]

    def _cut_direct(self, link: PreparedLink, runs: Mapping[str, Runs]) -> list[Slice]:
        pieces = slices.cut(link, runs, self.context.slice_bytes)
        return [Slice(self, link, piece, size) for piece, size in pieces]

    def has(self, slice_: Slice) -> bool:
        """Return whether a slice still has to be moved, or is moving."""
        return slice_ in self._slices

    def post_staged(self, slice_: Slice) -> None:
        """Post a staged slice, if it is ready."""
        self._try(self._post_ready, slice_)

    def step(self) -> None:
        """Post staged slices that are ready, and close slices that have moved."""
        for slice_ in list(self._slices):
            if slice_.stage is SliceStage.STAGED and slice_ in self._slices:
                self.post_staged(slice_)
            posted = slice_.stage is SliceStage.POSTED and slice_ in self._slices
            if posted and self._try(self._over, slice_):
                self.close(slice_)
                del self._slices[slice_]
                self.meter.moved += slice_.moved
                if slice_.staged is not None:
                    self._hand_on()

    def _hand_on(self) -> None:
        """Give a buffer that came back to the next slice at once, so that its copy runs while others are posted."""
        waiting = (s for s in self._slices if s.stage is SliceStage.STAGED and s.staged and not s.staged.begun)
        if (slice_ := next(waiting, None)) is not None and slice_.staged is not None:
            self._try(slice_.staged.ready)

    def stop(self) -> None:
        """Post nothing more. Slices whose bytes may still move are `in_progress` until they settle."""
        self.stopped = True
        self.context.admission.drop_request(self.request, self.ends.client)
        stopped, self._slices, self._foreseen = list(self._slices), {}, NOTHING_FORESEEN
        for slice_ in stopped:
            if slice_.staged is not None:
                slice_.staged.leave()
        self.in_progress += [slice_ for slice_ in stopped if slice_.touching]
        for slice_ in stopped:
            if not slice_.touching:
                self.close(slice_)

    def reap(self, push: bool) -> None:
        """Close stopped slices that can touch nothing any more."""
        for slice_ in [slice_ for slice_ in self.in_progress if slice_.settled()]:
            self.in_progress.remove(slice_)
            self.close(slice_)
        self.lost = self.lost or (push and self._may_land())

    def _may_land(self) -> bool:
        """Return whether sent bytes may land after nothing is in progress any more, because the connection broke.

        A failed post ends when its peer is lost. The loss is read now, because a reconnect clears it.
        """
        handles = [handle for slice_ in self.in_progress for handle in slice_.handles]
        failed = any(handle is None or handle.failed for handle in handles)
        return failed or (not self.in_progress and is_lost(self.context.transport, self.ends.peer))

    def close(self, slice_: Slice) -> None:
        """End a slice: its bytes are no longer in flight, and its buffer goes back."""
        self.context.admission.done(slice_)
        if slice_.staged is not None:
            slice_.staged.release()

    def _try(self, call: Callable[..., Any], *arguments: Any) -> bool:
        """Return what `call` returns, as a bool; False, after a call of `fail`, if it raises."""
        try:
            return bool(call(*arguments))
        except Exception as error:
            self.fail(error)
            return False

    def _post_ready(self, slice_: Slice) -> None:
        """Post a staged slice if it is ready. If the post moves it at once, begin its copy at once."""
        assert slice_.staged is not None
        if not slice_.staged.ready():
            return
        self.context.issue_staged(slice_, slice_.staged)
        if self.has(slice_):
            direction = "write" if slice_.link.push else "read"
            self.context.counters.add("staged_bytes", slice_.staged.piece.bytes, direction=direction)
            self._over(slice_)

    def _over(self, slice_: Slice) -> bool:
        for handle in list(slice_.handles):
            if handle is None or not _poll(slice_, handle):
                return False
            self.meter.count_posted(handle.descriptors())
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
    """Return slices in groups to be posted together, in order: adjacent small direct slices of one link share one."""
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
    """Return the runs by pair of several slices of one link, concatenated."""
    return {pair: Runs(*map(np.concatenate, zip(*(one[pair] for one in runs), strict=True))) for pair in runs[0]}


def _load_of(slice_: Slice, scratch: IndexScratch) -> GatheredSpans:
    """Return the spans to post for one slice, gathered before or now; for a staged one, with a buffer at address 0."""
    if slice_.load is not None:
        return slice_.load
    if slice_.staged is not None:
        return gather_staged(slice_.link, slice_.staged.piece)
    return gather(slice_.link, slice_.runs, scratch)


def predict(link: PreparedLink, runs: Mapping[str, Runs], context: ExecutorContext) -> int:
    """Return how many descriptors would be posted to move these runs by pair. Raises LimitError."""
    direct, moves = slices.through_stage(link, runs) if link.staged else (link, [])
    pieces = [] if direct is None else slices.cut(direct, runs, context.slice_bytes)
    posted = sum(gather(direct, part, context.scratch).descriptors for part, _ in pieces if direct)
    return posted + sum(gather_staged(link, move.piece).descriptors for move in moves)
