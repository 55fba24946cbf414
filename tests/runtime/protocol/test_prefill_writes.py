"""A prefill core's writes and the messages about them: one rule each. No byte moves here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.runtime.protocol.prefill_bench import END, HERE, LEASE, THERE, Bench, blocks, reader

from kvplan.plan.types import Blocks
from kvplan.runtime import errors
from kvplan.runtime.control.messages import (
    AskBuffer,
    Bye,
    Confirmed,
    Done,
    Failed,
    Leave,
    Stopped,
    WriteRequest,
    Written,
    pack,
)
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.effects import Counted

A, B = reader(0, push=True), reader(1, push=True)
AGAIN = reader(0, push=True, connection=1)
KEY = effects.WriteKey(A, "r")


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.meet(A, B)
    return made


def writing(bench: Bench, *readers: Any) -> int:
    """Request r is being written. Returns its hold."""
    hold = bench.hold()
    for who in readers or (A,):
        bench.claim(who)
        bench.want(who)
    bench.outputs.clear()
    return hold


def phases(bench: Bench) -> list[str]:
    return [write.phase.name for write in bench.core.writes]


def refused(bench: Bench, who: Any = A) -> str:
    """Why the core refused to write to a reader and began nothing."""
    assert not [one for one in bench.outputs if isinstance(one, effects.Move)]
    (failed,) = [one for one in bench.said(who) if isinstance(one, Failed)]
    return f"{failed.code} {failed.message}"


def test_what_is_held_is_moved_in_the_step_in_which_it_is_asked_for(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    bench.outputs.clear()
    bench.want(A)
    (move,) = bench.take(effects.Move)
    assert (move.key, move.layers, sorted(move.runs), move.last) == (KEY, None, ["kv", "state"], True)
    bench.tell(bench.core.writes.moved, KEY, 64)
    assert bench.said(A) == [Written("r", hold, 64)]
    assert phases(bench) == []


def written_in_two_chunks(bench: Bench) -> None:
    """Open a request, offer it in two chunks, and have A ask for it; nothing is computed yet."""
    bench.open()
    bench.offer((0, 4), {"kv": HERE["kv"]})
    bench.offer((4, END), last=True)
    bench.claim(A, streamed=True)
    bench.want(A)


def test_chunks_are_moved_when_they_are_computed(bench: Bench) -> None:
    written_in_two_chunks(bench)
    assert bench.take(effects.Move) == []
    for computed, want in ((1, [False]), (1, []), (2, [True])):
        bench.tell(bench.core.computed, "r", computed)
        bench.step()
        assert [move.last for move in bench.take(effects.Move)] == want


def test_no_more_chunks_are_moved_for_who_has_left(bench: Bench) -> None:
    written_in_two_chunks(bench)
    bench.tell(bench.core.computed, "r", 1)
    bench.step()
    assert len(bench.take(effects.Move)) == 1
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    bench.tell(bench.core.computed, "r", 2)
    bench.step()
    assert bench.take(effects.Move) == []


def test_a_whole_request_is_moved_once_and_when_it_is_computed(bench: Bench) -> None:
    bench.hold(ready=False)
    bench.claim(A, streamed=True)
    bench.want(A)
    for computed, moves in ((0, 0), (1, 1), (1, 0)):
        bench.tell(bench.core.computed, "r", computed)
        bench.step()
        assert len(bench.take(effects.Move)) == moves


def test_what_is_wanted_is_counted_by_what_becomes_of_it(bench: Bench) -> None:
    bench.hold()
    for claimed, kind in ((False, "unexpected"), (True, "wanted")):
        bench.claim(A) if claimed else None
        bench.outputs.clear()
        bench.want(A)
        assert [one.kinds for one in bench.take(Counted)] == [{kind: 1}]


def test_nothing_is_written_on_when_the_lease_ran_out_meanwhile(bench: Bench) -> None:
    writing(bench)
    bench.now = LEASE
    bench.tell(bench.core.leases.end_due, bench.now)
    assert [one.key for one in bench.outputs if isinstance(one, effects.Stop)] == [KEY]
    freed = [one.released.why for one in bench.outputs if isinstance(one, effects.Free)]
    assert freed == ["expired"], "its decode worker may be frozen"
    assert "has ended (expired)" in bench.said(A)[-1].message
    assert phases(bench) == ["ENDED"]
    bench.tell(bench.core.writes.settled, KEY, lost=False)
    assert phases(bench) == []


def test_a_name_that_is_held_again_is_not_confirmed_by_an_earlier_write(bench: Bench) -> None:
    writing(bench)
    bench.withdraw()
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    assert [one.released.why for one in bench.take(effects.Free)] == ["withdrawn"]
    bench.core.leases.collected(["r"])
    bench.hold(tables=HERE)
    bench.claim(A, told=HERE)
    bench.outputs.clear()
    bench.want(A, told=HERE)
    assert "is being written: wait" in refused(bench)
    bench.tell(bench.core.writes.moved, KEY, 64)
    assert [one for one in bench.said(A) if not isinstance(one, Failed)] == [Stopped("r", lost=False)]
    bench.outputs.clear()
    bench.want(A, told=HERE)
    assert phases(bench) == ["WRITING"]


def test_a_hold_that_has_ended_offers_nothing(bench: Bench) -> None:
    """The hold ends for all readers at once: also for one that pulls, and for one that asks for a piece."""
    pulls = reader(1, name="pulls")
    bench.meet(pulls)
    bench.open()
    bench.offer((0, 4), {"kv": HERE["kv"]})
    bench.tell(bench.core.computed, "r", 1)
    for who in (A, pulls):
        bench.claim(who, streamed=True)
    bench.want(A)
    bench.step()
    bench.offer((4, END), last=True)
    bench.outputs.clear()
    bench.now = LEASE
    bench.tell(bench.core.leases.end_due, bench.now)
    assert bench.core.leases.holds() == ()
    assert [(one.request, one.code) for one in bench.said(pulls)] == [("r", "R046")]
    bench.tell(bench.core.computed, "r", 2)
    bench.step()
    assert bench.said(pulls) == []
    with pytest.raises(errors.HandleError, match="cannot be offered"):
        bench.offer((4, END), last=True)
    (failed,) = bench.hear(pulls, AskBuffer("r", 0, None, ()))
    assert failed.code == "R046"
    assert bench.take(effects.Buffer) == []


def test_what_was_written_after_the_lease_ran_out_is_not_written(bench: Bench) -> None:
    """Its last byte came in the step in which the lease ended."""
    writing(bench)
    bench.now = LEASE
    bench.tell(bench.core.leases.end_due, bench.now)
    bench.tell(bench.core.writes.moved, KEY, 64)
    assert {type(one) for one in bench.said(A)} == {Failed}
    assert phases(bench) == []


def test_a_request_is_written_to_a_reader_once_at_a_time(bench: Bench) -> None:
    writing(bench)
    bench.want(A)
    assert "is being written: wait" in refused(bench)
    assert phases(bench) == ["WRITING"]


def test_pushes_are_for_pairs_that_push(bench: Bench) -> None:
    pulling = reader(0)
    bench.meet(pulling)
    bench.hold()
    bench.claim(pulling)
    bench.outputs.clear()
    bench.want(pulling)
    assert "connect with mode push" in refused(bench, pulling)


@pytest.mark.parametrize(
    ("opened", "want", "text"),
    [
        (None, {"told": blocks(4, 5, 7)}, "R046 request r: hold 0 has other blocks of group 'kv'"),
        (None, {"tokens": (0, 500)}, "the request ends at 500"),
        ((4, 8), {"tokens": (4, END)}, "was opened for"),
        ((4, END), {"tokens": (0, END)}, "was opened for"),
    ],
)
def test_what_does_not_fit_is_not_begun(bench: Bench, opened: Any, want: Any, text: str) -> None:
    if opened is None:
        bench.hold(tables=HERE)
    else:
        bench.open("r", opened)
    bench.claim(A, told=HERE, streamed=opened is not None)
    bench.outputs.clear()
    bench.want(A, **want)
    assert text in refused(bench)
    assert phases(bench) == []


def test_a_chunk_of_other_blocks_fails_its_write(bench: Bench) -> None:
    bench.open()
    bench.offer((0, END), {"kv": Blocks(0, np.array([4, 5, 7])), "state": HERE["state"]}, last=True)
    bench.claim(A, streamed=True)
    bench.want(A)
    bench.outputs.clear()
    bench.tell(bench.core.computed, "r", 1)
    bench.step()
    assert [one.error.code for one in bench.outputs if isinstance(one, effects.WriteFailed)] == [errors.LeaseError.code]
    assert "the hold has other blocks of group 'kv'" in refused(bench)
    assert phases(bench) == [], "nothing of it was begun"


def test_a_write_that_ends_after_its_hold_is_not_confirmed(bench: Bench) -> None:
    """All decode workers have said Done, the last one in the same turn."""
    hold = writing(bench)
    bench.claim(B)
    bench.hear(B, Done("r", hold, 1))
    bench.hear(A, Done("r", hold, 1, sample=(1, 0)))
    bench.outputs.clear()
    bench.core.dones.compared(A, "r", None)
    bench.tell(bench.core.writes.moved, KEY, 64)
    assert [type(one) for one in bench.said(A)] == [Confirmed]
    assert phases(bench) == []


def test_who_cannot_be_reached_is_told_so(bench: Bench) -> None:
    bench.hold()
    bench.claim(A)
    bench.outputs.clear()
    bench.tell(bench.core.inbox.hear, A, WriteRequest("r", (0, END), {}, {}, {}), errors.NotBegunError("ask again"))
    assert "ask again" in refused(bench)


@pytest.mark.parametrize("lost", [False, True])
def test_who_leaves_is_told_when_nothing_is_under_way_and_whether_it_may_still_land(bench: Bench, lost: bool) -> None:
    writing(bench)
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    assert [one.key for one in bench.outputs if isinstance(one, effects.Stop)] == [KEY]
    assert (bench.said(A), phases(bench)) == ([], ["ENDED"])
    bench.tell(bench.core.writes.settled, KEY, lost=lost)
    assert (bench.said(A), phases(bench)) == ([Stopped("r", lost)], [])
    # A second question gets the same answer, and a stranger gets that nothing is known.
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    bench.tell(bench.core.inbox.stranger, b"x", Leave("r"))
    assert next(one.message for one in bench.outputs if isinstance(one, effects.Reply)) == Stopped("r", lost=True)
    assert bench.said(A) == [Stopped("r", lost)]


def test_who_leaves_what_is_not_written_is_told_at_once(bench: Bench) -> None:
    bench.hold()
    assert bench.hear(A, Leave("r")) == [Stopped("r", lost=False)]
    bench.claim(A)
    bench.want(A)
    bench.tell(bench.core.writes.moved, KEY, 64)
    assert bench.hear(A, Leave("r")) == [Stopped("r", lost=False)]


def test_another_workers_leave_stops_no_write(bench: Bench) -> None:
    writing(bench)
    assert bench.hear(B, Leave("r")) == [Stopped("r", lost=False)]
    assert phases(bench) == ["WRITING"]


def test_a_late_leave_of_an_earlier_connection_ends_nothing_of_a_later_one(bench: Bench) -> None:
    bench.meet(AGAIN)
    writing(bench, AGAIN)
    assert bench.hear(A, Leave("r", alone=True)) == [Stopped("r", lost=False)]
    assert not bench.take(effects.Drop)
    assert phases(bench) == ["WRITING"]


def test_a_frozen_engine_keeps_no_other_engine_waiting(bench: Bench) -> None:
    other = reader(0, push=True, run="other", name="other")
    bench.meet(other)
    writing(bench, A, other)
    for one in (A, other):
        bench.tell(bench.core.inbox.hear, one, Leave("r"))
    bench.outputs.clear()
    bench.tell(bench.core.writes.settled, effects.WriteKey(other, "r"), lost=False)
    assert bench.said(other) == [Stopped("r", lost=False)]
    assert bench.hear(other, Leave("r")) == [Stopped("r", lost=False)]


def test_a_reader_that_is_dropped_ends_its_own_writes(bench: Bench) -> None:
    writing(bench, A, B)
    bench.tell(bench.core.inbox.hear, B, Bye())
    assert [one.key for one in bench.take(effects.Stop)] == [effects.WriteKey(B, "r")]


def test_requests_whose_connection_broke_are_remembered_up_to_a_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvplan.runtime.protocol.writes.MOST_CUT_OFF", 1)
    for name in "rs":
        bench.hold(name)
        bench.claim(A, name)
        bench.tell(bench.core.inbox.hear, A, WriteRequest(name, (0, END), {}, pack(HERE), pack(THERE)))
        bench.tell(bench.core.writes.broken, effects.WriteKey(A, name), errors.PeerLostError("gone"))
        bench.tell(bench.core.writes.settled, effects.WriteKey(A, name), lost=False)
    assert [bench.hear(A, Leave(name)) for name in "rs"] == [[Stopped("r", lost=False)], [Stopped("s", lost=True)]]


def test_stopped_is_said_once_all_that_was_given_up_is_over(bench: Bench) -> None:
    """This includes writes for an earlier connection that the new one replaces."""
    writing(bench, A)
    bench.meet(AGAIN)
    bench.claim(AGAIN)
    bench.want(AGAIN)
    bench.tell(bench.core.inbox.hear, AGAIN, Leave("r", alone=True))
    assert [one.reader for one in bench.outputs if isinstance(one, effects.Drop)] == [A]
    bench.tell(bench.core.writes.settled, effects.WriteKey(AGAIN, "r"), lost=False)
    assert bench.said(AGAIN)[1:] == []
    bench.tell(bench.core.writes.settled, KEY, lost=True)
    assert bench.said(AGAIN) == [Stopped("r", lost=True)]


def test_a_request_that_ends_ends_what_is_written_of_it(bench: Bench) -> None:
    writing(bench)
    bench.withdraw()
    assert [one.key for one in bench.outputs if isinstance(one, effects.Stop)] == [KEY]
    assert [type(one) for one in bench.said(A)] == [Failed, Failed]
    assert phases(bench) == ["ENDED"]
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    assert [one.released.why for one in bench.take(effects.Free)] == ["withdrawn"]
    assert not [one for one in bench.said(A) if isinstance(one, Stopped)]
    bench.tell(bench.core.writes.settled, KEY, lost=False)
    assert bench.said(A)[-1] == Stopped("r", lost=False)


def test_an_engine_that_was_dropped_is_told_when_nothing_is_written_to_it_any_more(bench: Bench) -> None:
    writing(bench)
    bench.tell(bench.core.drop_engine, "decode")
    assert [one.key for one in bench.take(effects.Stop)] == [KEY]
    bench.meet(AGAIN)
    assert bench.hear(AGAIN, Leave("r")) == []
    bench.tell(bench.core.writes.settled, KEY, lost=False)
    assert bench.said(AGAIN) == [Stopped("r", lost=False)]


@pytest.mark.parametrize("error", [errors.TransferError("no"), errors.PeerLostError("gone"), ValueError("bad")])
def test_a_write_that_breaks_fails_its_request(bench: Bench, error: Exception) -> None:
    writing(bench)
    bench.tell(bench.core.writes.broken, KEY, error)
    bench.tell(bench.core.writes.broken, KEY, error)
    code = error.code if isinstance(error, errors.KvplanError) else errors.TransferError.code
    assert [one.error.code for one in bench.outputs if isinstance(one, effects.WriteFailed) and one.ends] == [code]
    assert [one.code for one in bench.said(A)] == [code]
    bench.tell(bench.core.writes.settled, KEY, lost=False)
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    assert bench.said(A) == [Stopped("r", lost=isinstance(error, errors.PeerLostError))]


def test_what_is_given_up_while_its_last_byte_lands_is_settled(bench: Bench) -> None:
    writing(bench)
    bench.tell(bench.core.inbox.hear, A, Leave("r"))
    bench.tell(bench.core.writes.moved, KEY, 64)
    assert (bench.said(A), phases(bench)) == ([Stopped("r", lost=False)], [])


def test_completions_of_a_write_that_is_over_change_nothing(bench: Bench) -> None:
    writing(bench)
    bench.tell(bench.core.writes.moved, KEY, 64)
    bench.outputs.clear()
    writes = bench.core.writes
    assert bench.tell(writes.moved, KEY, 64) == bench.tell(writes.settled, KEY, lost=True) == []
    assert bench.tell(writes.broken, KEY, ValueError()) == []
