"""An executor over a transport made by hand: what is posted, what is waited for, and what is given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.types import Runs
from kvplan.runtime import Counters, Limits
from kvplan.runtime.errors import LimitError, NotBegunError, PeerLostError, TransportError
from kvplan.runtime.transfer import executor
from kvplan.runtime.transfer.demand import Meter
from kvplan.runtime.transfer.executor import ExecutorContext, MoveEnds, SliceStage, TransferExecutor
from kvplan.runtime.transfer.gather import GatheredSpans
from kvplan.runtime.transfer.posts import over

NONE = np.empty((0, 3), np.int64)
INDEX = np.zeros(1, np.int32)


class Handle:
    """A transfer whose end a test decides: True, False, or an error."""

    def __init__(self) -> None:
        self.end: bool | Exception = False
        self.released = False

    def poll(self) -> bool:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    failed = False

    def descriptors(self) -> int:
        return 3

    def release(self) -> None:
        self.released = True


class Transport:
    """Posts as many handles as it is asked for; `fail` is raised instead by the post of that number."""

    def __init__(self) -> None:
        self.handles, self.fail, self.gone = list[Handle](), dict[int, Exception](), set[str]()

    def lost(self, peer: str) -> bool:
        return peer in self.gone

    def post(self, *_: object) -> Handle:
        if error := self.fail.get(len(self.handles)):
            raise error
        self.handles.append(Handle())
        return self.handles[-1]


def ends(request: str) -> MoveEnds:
    return MoveEnds(request, "p", "p", None, Meter())  # type: ignore[arg-type]


def stopped(stopping: TransferExecutor) -> list[executor.Slice]:
    """Stop, and return the slices that may still move bytes."""
    stopping.stop()
    return stopping.in_progress


class Rig:
    """Slices of 10 bytes, two posts each, of which two slices may be in flight. `small` ones are posted together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, small: int = 0) -> None:
        monkeypatch.setattr(executor, "SMALL", small)
        bank, self.link = (
            SimpleNamespace(local=None, remote=None),
            SimpleNamespace(op="READ", peer="p", push=False, staged=False),
        )
        self.load = load = GatheredSpans(((bank, INDEX, INDEX),) * 2, NONE, NONE, (), 10, 2)  # type: ignore[arg-type]
        monkeypatch.setattr("kvplan.runtime.transfer.executor.gather", lambda *_: load)
        monkeypatch.setattr("kvplan.runtime.transfer.slices.cut", lambda link, runs, most: [(runs, 10)])
        self.transport = Transport()
        self.counters = Counters()
        self.context = ExecutorContext(self.transport, Limits(20, 20, 10), self.counters)  # type: ignore[arg-type]
        self.queue = self.context.admission
        self.failures, self.said = list[Exception](), list[object]()
        self.executor, self.other = (TransferExecutor(ends(name), self.context, self.failures.append) for name in "rs")

    def add(self, count: int = 1) -> None:
        runs: dict[str, Runs] = {}
        for _ in range(count):
            self.executor.add(self.link, runs)  # type: ignore[arg-type]

    def admit(self) -> list[Any]:
        admitted = self.queue.admit(20)
        self.context.post(admitted)
        return admitted

    def end(self, *numbers: int) -> None:
        """These handles are done."""
        for number in numbers:
            self.transport.handles[number].end = True
        self.executor.step()


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A slice each of two requests, which are posted together."""
    rig = Rig(monkeypatch, small=10)
    for one in (rig.executor, rig.other):
        one.add(rig.link, {"kv": NO_RUNS})  # type: ignore[arg-type]
        one.complete = True
    return rig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_a_transfer_is_over_when_it_is_done_or_its_connection_is_gone() -> None:
    handle = Handle()
    for end, wanted in ((False, False), (TransportError("odd"), False), (ValueError("odder"), False)):
        handle.end = end
        assert (over("p", handle), handle.released) == (wanted, False)
    assert not over("p", None)
    for end in (True, PeerLostError("gone")):
        handle = Handle()
        handle.end = end
        assert (over("p", handle), handle.released) == (True, True)


class Move:
    """One way through a stage of a single buffer, which a slice has when it is asked for while it is free."""

    free = 1
    at_peer, copying = False, False

    def __init__(self) -> None:
        self.piece, self.begun, self.address = SimpleNamespace(bytes=10, moved=10), False, 0

    def ready(self) -> bool:
        if not self.begun and Move.free:
            self.begun, Move.free = True, Move.free - 1
        return self.begun

    def arrived(self) -> bool:
        return True

    def release(self) -> None:
        Move.free += self.begun
        self.begun = False


def test_a_buffer_that_comes_back_is_the_next_slice_s_before_anything_else_is_posted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that slice was looked at before the one that had it."""
    moves = [Move() for _ in range(3)]
    monkeypatch.setattr("kvplan.runtime.transfer.slices.through_stage", lambda *_: (None, moves))
    monkeypatch.setattr(executor, "gather_staged", lambda *_: rig.load)
    rig.link.staged = True
    rig.add()
    assert moves[1].ready()
    rig.admit()
    assert [move.begun for move in moves] == [False, True, False]
    posted = len(rig.transport.handles)
    rig.end(*range(posted))
    assert [move.begun for move in moves] == [True, False, False]
    assert len(rig.transport.handles) == posted
    assert {one.stage for one in rig.context.inspected()} == {"staged", "limited"}


def test_done_when_every_post_of_every_slice_is(rig: Rig) -> None:
    rig.add(2)
    rig.executor.complete = True
    assert not rig.executor.done
    rig.admit()
    rig.end(1, 2)
    assert (rig.executor.done, rig.executor.meter.moved) == (False, 0)
    rig.end(0)
    assert (rig.executor.done, rig.executor.meter.moved, rig.queue.in_flight()) == (False, 10, 10)
    rig.end(3)
    assert (rig.executor.done, rig.executor.meter.moved, rig.queue.in_flight()) == (True, 20, 0)
    assert (rig.executor.meter.descriptors, rig.executor.meter.posted) == (4, 12)
    assert all(handle.released for handle in rig.transport.handles)


def test_not_done_while_more_is_to_come(rig: Rig) -> None:
    rig.add()
    rig.admit()
    rig.end(0, 1)
    assert not rig.executor.done


def test_after_a_failure_nothing_is_posted_and_what_is_under_way_is_named(rig: Rig) -> None:
    rig.add(3)
    rig.admit()
    waiting = stopped(rig.executor)
    assert [slice_.stage for slice_ in waiting] == [SliceStage.POSTED] * 2
    assert (len(rig.admit()), len(rig.queue.tokens()), len(rig.transport.handles)) == (0, 2, 4)
    assert rig.queue.in_flight() == 20
    assert not waiting[0].settled()
    rig.transport.handles[0].end = rig.transport.handles[1].end = True
    assert waiting[0].settled()
    rig.executor.close(waiting[0])
    assert rig.queue.in_flight() == 10


def test_what_was_admitted_when_it_failed_is_not_posted(rig: Rig) -> None:
    rig.add()
    (slice_,) = rig.queue.admit(20)
    assert stopped(rig.executor) == []
    rig.context.post([slice_])
    assert (rig.transport.handles, rig.queue.in_flight()) == ([], 0)


@pytest.mark.parametrize("error", [NotBegunError("full"), PeerLostError("gone"), LimitError("many")])
def test_a_post_that_begins_nothing_is_not_waited_for(rig: Rig, error: Exception) -> None:
    rig.transport.fail[0] = error
    rig.add()
    rig.admit()
    assert rig.failures == [error]
    assert (stopped(rig.executor), rig.queue.in_flight()) == ([], 0)
    assert rig.counters.snapshot()["posts"] == rig.counters.snapshot()["spans"] == 0


@pytest.mark.parametrize("error", [TransportError("odd"), MemoryError("none")])
def test_a_post_that_may_have_begun_something_never_settles(rig: Rig, error: Exception) -> None:
    rig.transport.fail[1] = error
    rig.add()
    rig.admit()
    (slice_,) = stopped(rig.executor)
    rig.transport.handles[0].end = True
    assert not slice_.settled()
    assert rig.queue.in_flight() == 10


def test_a_handle_of_a_lost_peer_is_given_back_once(rig: Rig) -> None:
    rig.add()
    rig.admit()
    rig.transport.handles[0].end = PeerLostError("gone")
    rig.executor.step()
    assert (len(rig.failures), rig.transport.handles[0].released) == (1, True)
    (slice_,) = stopped(rig.executor)
    assert slice_.handles == [rig.transport.handles[1]]


def test_small_slices_of_two_requests_are_one_transfer_and_done_each_by_itself(both: Rig) -> None:
    both.admit()
    assert len(both.transport.handles) == 2
    both.end(0, 1)
    assert (both.executor.done, both.other.done, both.queue.in_flight()) == (True, False, 10)
    assert not any(handle.released for handle in both.transport.handles)
    both.other.step()
    assert (both.other.done, both.queue.in_flight()) == (True, 0)
    assert all(handle.released for handle in both.transport.handles)
    counts = [(one.meter.posted, one.meter.descriptors) for one in (both.executor, both.other)]
    assert counts == [(6, 2), (0, 0)]


def test_who_leaves_a_shared_transfer_waits_until_it_is_over(both: Rig) -> None:
    both.admit()
    (left,) = stopped(both.executor)
    assert not left.settled()
    both.end(0, 1)
    both.other.step()
    assert both.other.done
    assert not any(handle.released for handle in both.transport.handles)
    assert left.settled()
    assert all(handle.released for handle in both.transport.handles)


def test_a_lost_peer_is_told_to_all_who_share_a_transfer(both: Rig) -> None:
    both.admit()
    both.transport.handles[0].end = PeerLostError("gone")
    both.executor.step()
    both.transport.handles[0].end = TransportError("asked once more")
    both.other.step()
    assert [type(error) for error in both.failures] == [PeerLostError] * 2
    assert both.transport.handles[0].released
    for one in (both.executor, both.other):
        (slice_,) = stopped(one)
        assert len(slice_.handles) == 1


def test_a_shared_transfer_that_failed_is_over_for_all_when_it_ends(both: Rig) -> None:
    """Both learn of the failure, in any order; afterwards the transport's answer counts."""
    both.admit()
    both.transport.handles[0].end = TransportError("bytes may still move")
    both.executor.step()
    both.transport.handles[0].end = both.transport.handles[1].end = True
    both.other.step()
    assert [str(error) for error in both.failures] == ["bytes may still move"] * 2
    left = [*stopped(both.executor), *stopped(both.other)]
    assert [slice_.settled() for slice_ in left] == [True] * 2
    assert all(handle.released for handle in both.transport.handles)


@pytest.mark.parametrize(("error", "left"), [(NotBegunError("full"), 0), (TransportError("odd"), 1)])
def test_a_shared_post_that_fails_fails_all(both: Rig, error: Exception, left: int) -> None:
    both.transport.fail[0] = error
    both.admit()
    assert both.failures == [error] * 2
    assert [len(stopped(one)) for one in (both.executor, both.other)] == [left] * 2


def test_what_cannot_be_gathered_for_all_is_gathered_for_each(both: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()

    def gather(link: object, runs: dict[str, Runs], scratch: object) -> GatheredSpans:
        calls.append(len(calls))
        if len(calls) < 3:
            raise LimitError("many")
        return both.load

    monkeypatch.setattr(executor, "gather", gather)
    both.admit()
    assert (len(calls), [str(error) for error in both.failures]) == (3, ["many"])
    assert len(both.transport.handles) == 2


def test_what_another_slice_of_its_request_has_ended_is_not_posted(both: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one cannot be gathered: its request is over, and the blocks of both are free."""
    loads: list[GatheredSpans | None] = [None, None, both.load, both.load]

    def gather(*_: object) -> GatheredSpans:
        if (load := loads.pop(0)) is None:
            raise LimitError("many")
        return load

    monkeypatch.setattr(executor, "gather", gather)
    left = list[Any]()
    stopping = TransferExecutor(ends("t"), both.context, lambda _: left.extend(stopped(stopping)))
    for _ in range(2):
        stopping.add(both.link, {"kv": NO_RUNS})  # type: ignore[arg-type]
    both.executor.stop()
    both.other.stop()
    both.admit()
    assert (left, both.transport.handles, both.queue.in_flight()) == ([], [], 0)


def test_a_large_slice_is_posted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, small=10)
    sizes = [10, 10, 11, 10, 10, 10]
    links: list[Any] = [rig.link] * 5 + [SimpleNamespace(op="READ", peer="q")]
    made = [executor.Slice(rig.executor, link, {}, size) for link, size in zip(links, sizes, strict=True)]
    assert [[made.index(one) for one in group] for group in executor.groups(made)] == [[0, 1], [2], [3, 4], [5]]
    monkeypatch.setattr(executor, "TOGETHER", 15)
    assert [len(group) for group in executor.groups(made)] == [1] * 6


def test_what_was_foreseen_is_of_one_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another link to the same peer, made by a reconnect, cuts everything again."""
    rig = Rig(monkeypatch)
    rig.link.ways = (False,)
    runs: dict[str, Runs] = {}
    links: list[Any] = [rig.link, SimpleNamespace(**vars(rig.link))]
    for link in links:
        rig.executor.foresee(links[0], runs)
        rig.executor.add(link, runs)
    assert all(slice_.link is link for slice_, link in zip(rig.admit(), links, strict=True))
