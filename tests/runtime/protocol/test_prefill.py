"""A prefill core's answers to readers, the requests that it keeps, and its outputs to its worker: one rule each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.snapshot import snapshot
from tests.runtime.protocol.prefill_bench import END, HERE, LEASE, THERE, Bench, blocks, reader

from kvplan.plan.types import Blocks
from kvplan.runtime import Slot, errors
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import Refusal
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.effects import Counted, Send
from kvplan.runtime.protocol.holds import MOST_RUNS
from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.transfer.chunks import Chunk

A, B = reader(0), reader(1)
SUMS: dict[str, Any] = {"sums": (("kv", 3, 1),), "sample": (1, 0)}


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.meet(A, B)
    return made


def lost(answer: object, reason: wire.LossReason) -> str:
    assert isinstance(answer, wire.Lost)
    assert answer.reason is reason
    return answer.text


# Claims


def test_a_request_from_claim_to_release(bench: Bench) -> None:
    hold = bench.hold()
    (answers,) = bench.hear(A, wire.Claim(7, ("r", "s")))
    assert answers == wire.ClaimAnswers(7, LEASE, (wire.Claimed("r", hold), wire.NotYet("s", held=False)))
    assert bench.claim(B) == wire.Claimed("r", hold)
    assert [bench.hear(who, wire.Done("r", hold, 1)) for who in (A, B)] == [[wire.Confirmed("r", 1)]] * 2
    assert [one.released for one in bench.take(effects.Free)] == [Released("r", "finished")]


def test_a_claim_before_the_hold_is_a_name_and_no_more(bench: Bench) -> None:
    assert bench.claim(A, told=HERE) == wire.NotYet("r", held=False)
    assert bench.core.state.sessions[A].claims["r"].tables is None


def test_who_claimed_before_the_hold_names_its_blocks_once_it_is_held(bench: Bench) -> None:
    """A heartbeat that is said between the hold and that names none, and is no claim to another hold."""
    bench.claim(A, told=HERE)
    hold = bench.hold(tables=HERE)
    bench.outputs.clear()
    bench.step()
    assert bench.said(A) == [wire.ClaimAnswers(1, LEASE, (wire.NotYet("r"),))]
    assert bench.claim(A) == wire.NotYet("r")
    assert bench.claim(A, told=HERE) == wire.Claimed("r", hold)


def test_who_claimed_before_the_hold_is_refused_like_anybody_else(bench: Bench) -> None:
    """If MOST_RUNS engines come first, the others are notified that they hold nothing."""
    readers = [reader(0, run=f"run{n}", name=f"engine{n}") for n in range(MOST_RUNS + 1)]
    bench.meet(*readers)
    assert {bench.claim(who, streamed=True) for who in readers} == {wire.NotYet("r", held=False)}
    bench.open()
    bench.offer((0, END), last=True)
    bench.tell(bench.core.computed, "r", 1)
    bench.outputs.clear()
    bench.step()
    answers = [one.message.answers[0] for one in bench.take(Send) if isinstance(one.message, wire.ClaimAnswers)]
    assert [type(answer) for answer in answers] == [wire.Claimed] * MOST_RUNS + [wire.Lost]
    lost(answers[-1], wire.LossReason.CROWDED)
    assert not bench.core.state.sessions[readers[-1]].claims


def test_a_claim_that_is_refused_promises_nothing_and_moves_no_lease(bench: Bench) -> None:
    bench.hold(tables=HERE)
    for bench.now in (LEASE / 2, LEASE - 1):
        lost(bench.claim(A, told=THERE), wire.LossReason.UNLIKE)
        (hold,) = bench.core.leases.holds()
        assert (hold.promises, hold.until) == ((), LEASE)


def test_a_request_is_claimed_once_it_is_computed(bench: Bench) -> None:
    hold = bench.hold(ready=False)
    assert bench.claim(A) == wire.NotYet("r")
    bench.step()
    bench.tell(bench.core.computed, "r", 1)
    bench.outputs.clear()
    bench.step()
    assert bench.said(A) == [wire.ClaimAnswers(1, LEASE, (wire.Claimed("r", hold),))]
    bench.step()
    assert bench.said(A) == []


@pytest.mark.parametrize("early", [False, True])
def test_a_promise_lasts_from_the_claim_and_not_from_when_it_is_answered(bench: Bench, early: bool) -> None:
    """Decode was not heard again when the request became whole: nobody knows that it still wants it."""
    acts: list[Callable[[], object]] = [lambda: bench.hold(ready=False), lambda: bench.claim(A, streamed=early)]
    for bench.now, act in enumerate(reversed(acts) if early else acts):
        act()
    bench.now = LEASE - 1
    bench.tell(bench.core.computed, "r", 1)
    bench.outputs.clear()
    bench.step()
    assert isinstance(bench.said(A)[0].answers[0], wire.Claimed)
    (hold,) = bench.core.leases.holds()
    assert (hold.promises, hold.until) == (((0, "run", LEASE + (not early)),), LEASE + 1)


def test_blocks_that_decode_names_are_those_that_are_held(bench: Bench) -> None:
    hold = bench.hold(tables=HERE)
    for named, group in (
        (blocks(4, 5, 7), "kv"),
        ({**HERE, "state": Slot(2, END)}, "state"),
        (blocks(4, 5, 6, 7), "kv"),
        ({"kv": Slot(4, END)}, "kv"),
    ):
        assert f"other blocks of group {group!r}" in lost(bench.claim(A, told=named), wire.LossReason.UNLIKE)
    assert "claimed for another hold" in lost(bench.claim(A), wire.LossReason.UNLIKE)
    for named in (HERE, {"kv": Blocks(1, np.array([5, -1]))}):
        assert bench.claim(A, told=named) == wire.Claimed("r", hold)
    assert bench.claim(A) == wire.Claimed("r", hold), "it was named for this hold"


def test_a_name_is_not_held_again_for_other_blocks(bench: Bench) -> None:
    """A decode worker that comes late names the blocks of the hold before: it never reads those of the new one."""
    bench.hold()
    bench.withdraw()
    bench.tell(bench.core.leases.collected, ("r",))
    with pytest.raises(errors.KvplanError, match="may still name old blocks"):
        bench.tell(bench.core.hold, "r", None, None, ready=True)
    bench.hold(tables=blocks(6, 7, 8))
    assert "has other blocks" in lost(bench.claim(A, told=HERE), wire.LossReason.UNLIKE)


def test_chunks_that_leave_a_gap_are_not_read_whole(bench: Bench) -> None:
    bench.open()
    bench.offer((0, 4))
    bench.offer((8, END), last=True)
    bench.tell(bench.core.computed, "r", 2)
    bench.now = 5
    (answers,) = bench.hear(A, wire.Claim(1, ("r",), (), {"r": wire.pack(HERE)}, {"r": (0, END)}))
    assert "leaves gaps" in lost(answers.answers[0], wire.LossReason.UNTILED)
    assert [hold.until for hold in bench.core.leases.holds()] == [LEASE]


def test_claims_of_a_connection_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.protocol.announcing.MOST_CLAIMS", 2)
    few = Bench(most=1)
    few.meet(A)
    few.hold("c")
    few.now = 5
    (answers,) = few.hear(A, wire.Claim(1, ("a", "b", "c")))
    assert answers.answers[:2] == (wire.NotYet("a", held=False), wire.NotYet("b", held=False))
    lost(answers.answers[2], wire.LossReason.TOO_MANY)
    assert [(hold.promises, hold.until) for hold in few.core.leases.holds()] == [((), LEASE)]


# Offers


def test_chunks_are_offered_in_order_as_they_are_computed(bench: Bench) -> None:
    hold = bench.open()
    assert bench.claim(A, streamed=True) == wire.Claimed("r", hold)
    bench.offer((0, 4), {"kv": HERE["kv"]})
    bench.offer((4, END), last=True)
    for computed, want in ((0, []), (1, [(0, (0, 4), False)]), (2, [(1, (4, END), True)])):
        bench.tell(bench.core.computed, "r", computed)
        bench.outputs.clear()
        bench.step()
        assert [(one.number, one.tokens, one.last) for one in bench.said(A)] == want


def test_a_whole_request_is_one_offer_to_who_streams(bench: Bench) -> None:
    hold = bench.hold(tables=HERE)
    bench.claim(A, streamed=True)
    bench.outputs.clear()
    bench.step()
    assert bench.said(A) == [wire.Offer("r", hold, 0, None, None, wire.pack(HERE), True, True)]


def test_a_whole_request_is_offered_once_and_when_it_is_computed(bench: Bench) -> None:
    bench.hold(ready=False)
    bench.claim(A, streamed=True)
    for computed, offers in ((0, 0), (1, 1), (1, 0)):
        bench.tell(bench.core.computed, "r", computed)
        bench.outputs.clear()
        bench.claim(A, streamed=True)
        bench.step()
        assert sum(isinstance(one, wire.Offer) for one in bench.said(A)) == offers


def test_a_request_that_is_fed_is_read_whole_when_all_of_it_is_there(bench: Bench) -> None:
    hold = bench.open()
    bench.offer((0, END), last=True)
    (answers,) = bench.hear(A, wire.Claim(1, ("r",), (), {"r": wire.pack(HERE)}, {"r": (0, END)}))
    assert answers.answers == (wire.NotYet("r"),)
    bench.tell(bench.core.computed, "r", 1)
    bench.outputs.clear()
    bench.step()
    assert [one.answers for one in bench.said(A)] == [(wire.Claimed("r", hold),)]


@pytest.mark.parametrize(("tokens", "text"), [((0, END + 1), "was opened for tokens"), ((4, 8), "after the last one")])
def test_a_chunk_that_does_not_fit_is_rejected(bench: Bench, tokens: tuple[int, int], text: str) -> None:
    bench.open()
    if tokens == (4, 8):
        bench.offer((0, END), last=True)
    with pytest.raises(errors.KvplanError, match=text):
        bench.offer(tokens)


def test_a_chunk_of_a_name_that_was_held_before_names_its_blocks(bench: Bench) -> None:
    bench.open()
    bench.withdraw()
    bench.tell(bench.core.leases.collected, ("r",))
    bench.open()
    with pytest.raises(errors.KvplanError, match="give tables"):
        bench.offer((0, END), {}, last=True)
    assert bench.offer((0, END), last=True) == []


def test_who_takes_nothing_is_told_when_it_does(bench: Bench) -> None:
    names = [f"late {number}" for number in range(5)]
    for name in names:
        bench.claim(A, name)
        bench.hold(name, None)
    bench.outputs.clear()
    bench.step(A)
    assert bench.said(A) == []
    bench.step()
    assert [said.answers[0].request for said in bench.said(A)] == names


def test_a_round_tells_a_reader_as_much_as_a_line_may_take_and_the_next_one_the_rest(bench: Bench) -> None:
    bench.open("r", (0, 3000))
    bench.claim(A, streamed=True)
    for number in range(3000):
        bench.offer((number, number + 1), {})
    bench.tell(bench.core.computed, "r", 3000)
    numbers: list[int] = []
    while bench.core.announcer.changed or bench.core.state.sessions[A].unannounced:
        bench.outputs.clear()
        bench.step()
        said = [one.number for one in bench.said(A)]
        assert 0 < len(said) <= 1024
        numbers += said
    assert numbers == list(range(3000))


# Readers


def test_a_new_run_takes_the_place_of_the_one_before(bench: Bench) -> None:
    bench.tell(bench.core.readers.introduce, b"new", "decode", "run")
    assert not bench.take(effects.Drop), "a second connection of one run"
    bench.tell(bench.core.readers.introduce, b"new", "decode", "run 2")
    assert {one.reader for one in bench.take(effects.Drop)} == {A, B}


def test_who_says_hello_again_through_a_connection_begins_again(bench: Bench) -> None:
    bench.tell(bench.core.readers.introduce, A.identity, "decode", "run")
    assert [one.reader for one in bench.take(effects.Drop)] == [A]


def test_a_silent_reader_is_forgotten(bench: Bench) -> None:
    bench.now = 3 * LEASE
    bench.hear(B, wire.Claim(1, ()))
    bench.step()
    assert not bench.take(effects.Drop)
    bench.now += 1
    bench.step()
    (drop,) = bench.take(effects.Drop)
    assert (drop.reader, drop.why) == (A, "it was silent for 31 s")
    assert bench.hear(A, wire.Claim(1, ())) == []


def test_a_silent_reader_that_was_lent_a_buffer_is_spoken_to(bench: Bench) -> None:
    bench.now = 5.0
    bench.hear(A, wire.Claim(1, ()))
    bench.outputs.clear()
    for now, said in ((5.5, 0), (6.0, 0), (6.5, 1), (7.0, 0), (7.5, 1)):
        bench.now = now
        bench.tell(bench.core.step, frozenset(), frozenset({A}), lends=False)
        words = bench.said(A)
        assert len(words) == said
        assert all(not word.lends for word in words)


def test_a_stranger_is_asked_to_say_hello(bench: Bench) -> None:
    for message, count in (
        (wire.Claim(1, ("r",)), 1),
        (wire.Done("r", 1, 1), 1),
        (wire.Leave("r"), 2),
        (wire.Bye(), 0),
    ):
        bench.tell(bench.core.inbox.stranger, b"x", message)
        replies = [one.message for one in bench.outputs if isinstance(one, effects.Reply)]
        (counted,) = bench.take(effects.Counted) or [effects.Counted({})]
        assert counted.kinds == dict.fromkeys(["stranger"][:count], 1)
        assert len(replies) == count
        assert count < 2 or replies[0] == wire.Stopped("r", lost=True), "nobody is written anything of it"
        assert all(isinstance(one, Refusal) and one.code == errors.StalePeerError.code for one in replies[-1:])


@pytest.mark.parametrize("error", [errors.PeerLostError("broken"), errors.CardError("too large")])
def test_who_cannot_be_told_is_dropped(bench: Bench, error: errors.KvplanError) -> None:
    bench.tell(bench.core.readers.unsent, A, wire.ClaimAnswers(1, LEASE, ()), error)
    assert [one.reader for one in bench.take(effects.Drop)] == [A]


def test_an_offer_that_no_message_can_hold_ends_its_request(bench: Bench) -> None:
    hold = bench.open()
    bench.claim(A, streamed=True)
    error = errors.CardError("too large")
    bench.tell(bench.core.readers.unsent, A, wire.Offer("r", hold, 0, None, None, {}, True), error)
    assert bench.said(A)[-1] == wire.Failed("r", error.code, "too large", 1)
    assert not bench.take(effects.Drop)


def test_numbers_that_nothing_foresaw_end_one_connection(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.protocol.announcing.wire.NotYet", lambda *_, **__: 1 // 0)
    bench.tell(bench.core.inbox.hear, A, wire.Claim(1, ("r",)))
    assert [one.kinds for one in bench.outputs if isinstance(one, effects.Counted)] == [{"malformed": 1}]
    assert [one.reader for one in bench.take(effects.Drop)] == [A]


def test_a_goodbye_keeps_what_was_promised(bench: Bench) -> None:
    bench.hold()
    bench.claim(A)
    bench.tell(bench.core.inbox.hear, A, wire.Bye())
    bench.withdraw()
    assert not bench.take(effects.Free)
    bench.now = LEASE
    bench.tell(bench.core.leases.end_due, bench.now)
    assert [one.released.why for one in bench.take(effects.Free)] == ["withdrawn"]


def test_an_engine_that_is_not_connected_cannot_be_dropped(bench: Bench) -> None:
    bench.tell(bench.core.drop_engine, "decode")
    assert {one.reader for one in bench.take(effects.Drop)} == {A, B}
    with pytest.raises(errors.KvplanError, match="is not connected"):
        bench.tell(bench.core.drop_engine, "decode")


def test_buffers_are_for_requests_that_are_held_and_claimed(bench: Bench) -> None:
    asked, returned = wire.AskBuffer("r", 0, None, ()), wire.ReturnBuffer("r", 0, moved=True)
    for claim, passed in ((False, 0), (True, 1)):
        if claim:
            bench.hold()
            bench.claim(A)
        bench.outputs.clear()
        assert len(bench.hear(A, asked)) == 1 - passed
        assert len(bench.take(effects.Buffer)) == passed
    bench.hear(A, returned)
    assert [one.message for one in bench.take(effects.Buffer)] == [returned]
    bench.hear(A, wire.Leave("r"))
    assert [one.request for one in bench.take(effects.ReaderLeft)] == ["r"]


def test_a_request_is_not_written_to_whom_did_not_claim_it(bench: Bench) -> None:
    bench.hold()
    (failed,) = bench.hear(A, wire.WriteRequest("r", (0, END), {}, {}, wire.pack(THERE)))
    assert (failed.code, "claim it first" in failed.message) == (errors.LeaseError.code, True)


# Connections


@pytest.mark.parametrize("late", ["Done", "Leave", "Claim"])
def test_what_an_earlier_connection_says_late_harms_no_attempt_over_a_later_one(late: str) -> None:
    """Messages of the old connection may arrive after decode has connected again and claimed the request again."""
    bench, earlier, later = Bench(), reader(connection=0), reader(connection=1)
    bench.meet(earlier, B)
    hold = bench.hold(tables=HERE)
    for who in (B, earlier):
        assert bench.claim(who, told=HERE) == wire.Claimed("r", hold)
    bench.hear(B, wire.Done("r", hold, 1))
    bench.tell(bench.core.readers.introduce, later.identity, later.name, "run")
    bench.meet(later)
    assert bench.claim(later, told=HERE) == wire.Claimed("r", hold)
    message = {"Done": wire.Done("r", hold, 1), "Leave": wire.Leave("r"), "Claim": wire.Claim(2, ("r",))}[late]
    bench.hear(earlier, message)
    assert not bench.take(effects.Free)
    assert bench.hear(later, wire.Done("r", hold, 2)) == [wire.Confirmed("r", 2)]
    assert [one.released.why for one in bench.take(effects.Free)] == ["finished"]


@pytest.mark.parametrize("goodbye", [False, True])
def test_what_a_run_has_read_is_read_whatever_becomes_of_the_run(goodbye: bool) -> None:
    bench = Bench()
    other = reader(0, "other", name="other")
    bench.meet(A, B, other)
    hold = bench.hold()
    for who in (A, B, other):
        bench.claim(who)
    for who in (A, B):
        bench.hear(who, wire.Done("r", hold, 1))
        bench.hear(who, wire.Bye()) if goodbye else None
    bench.tell(bench.core.readers.introduce, b"new", "decode", "run 2")
    bench.hear(other, wire.Leave("r"))
    assert [one.released.why for one in bench.take(effects.Free)] == ["finished"]


# Ends


def test_what_is_withdrawn_is_told_and_released_when_nobody_reads(bench: Bench) -> None:
    bench.hold()
    bench.claim(A)
    bench.outputs.clear()
    bench.withdraw()
    assert [one.code for one in bench.said(A)] == [errors.WithdrawnError.code]
    lost(bench.claim(B), wire.LossReason.WITHDRAWN)
    bench.hear(A, wire.Leave("r"))
    assert [one.released.why for one in bench.take(effects.Free)] == ["withdrawn"]


def test_a_done_that_crosses_a_withdrawal_is_told_why_it_counts_no_more(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    bench.withdraw()
    (failed,) = bench.hear(A, wire.Done("r", hold, 1))
    assert (type(failed), failed.code, failed.attempt) == (wire.Failed, errors.WithdrawnError.code, 1)
    assert "was withdrawn while it was read" in failed.message
    assert [one.released.why for one in bench.take(effects.Free)] == ["withdrawn"], "decode has failed it"


def test_what_fails_names_the_last_claim_that_was_read(bench: Bench) -> None:
    bench.hold()
    bench.hear(A, wire.Claim(7, ("r",)))
    bench.outputs.clear()
    bench.withdraw()
    assert [one.heartbeat for one in bench.said(A)] == [7]


def test_a_lease_that_nobody_renews_runs_out(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    bench.now = 9
    bench.claim(A)
    bench.now = 18
    bench.tell(bench.core.leases.end_due, bench.now)
    assert not bench.take(effects.Free)
    bench.now = 19
    bench.tell(bench.core.leases.end_due, bench.now)
    said: list[Any] = [one.message for one in bench.outputs if isinstance(one, Send)]
    assert [one.code for one in said] == [errors.LeaseError.code]
    assert [one.released.why for one in bench.take(effects.Free)] == ["expired"]
    (failed,) = bench.hear(A, wire.Done("r", hold, 1))
    assert (type(failed), failed.attempt) == (wire.Failed, 1)


def test_an_offer_begins_the_lease_again(bench: Bench) -> None:
    bench.open()
    bench.now = 9
    bench.offer((0, 4))
    bench.now = 18
    bench.tell(bench.core.leases.end_due, bench.now)
    with pytest.raises(errors.BadRequestError):
        bench.offer((4, END + 1))
    bench.now = 19
    bench.tell(bench.core.leases.end_due, bench.now)
    assert [one.released.why for one in bench.take(effects.Free)] == ["expired"]


@pytest.mark.parametrize(
    ("end", "why"), [("expire", r"hold 0 of request r has ended \(expired\)"), ("withdraw", "has withdrawn")]
)
def test_an_offer_after_the_end_is_refused_with_its_cause(bench: Bench, end: str, why: str) -> None:
    bench.open()
    bench.claim(A, streamed=True)
    bench.now = LEASE if end == "expire" else 0.0
    bench.tell(bench.core.leases.end_due, bench.now)
    if end == "withdraw":
        bench.withdraw()
    with pytest.raises(errors.HandleError, match=why):
        bench.offer((0, 4))


def test_a_hold_of_another_number_is_not_the_same(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    (failed,) = bench.hear(A, wire.Done("r", hold + 1, 1))
    assert (failed.code, failed.attempt) == (errors.LeaseError.code, 1)
    assert not bench.take(effects.Free)


def test_a_request_that_nobody_reads_is_free_at_once(bench: Bench) -> None:
    bench.tell(bench.core.leases.hold_without_readers, "r")
    assert [one.released for one in bench.take(effects.Free)] == [Released("r", "finished")]
    with pytest.raises(errors.HandleError):
        bench.tell(bench.core.leases.hold_without_readers, "r")


# Notes


def test_every_reader_is_given_the_note_when_the_request_has_arrived(bench: Bench) -> None:
    bench.tell(bench.core.hold, "r", None, None, ready=True, note=b"first token")
    hold = bench.core.state.sources["r"].hold
    assert [bench.claim(who) for who in (A, B)] == [wire.Claimed("r", hold)] * 2
    assert [bench.hear(who, wire.Done("r", hold, 1)) for who in (A, B)] == [
        [wire.Confirmed("r", 1, b"first token")]
    ] * 2


def test_the_last_chunk_has_the_note(bench: Bench) -> None:
    hold = bench.open()
    bench.claim(A, streamed=True)
    with pytest.raises(errors.KvplanError, match="a note comes with the last chunk"):
        bench.tell(bench.core.offer, "r", Chunk((0, 4), False, None, HERE), b"early")
    bench.tell(bench.core.offer, "r", Chunk((0, END), True, None, HERE), b"late")
    assert bench.hear(A, wire.Done("r", hold, 1)) == [wire.Confirmed("r", 1, b"late")]


def test_who_is_not_confirmed_is_given_no_note(bench: Bench) -> None:
    bench.tell(bench.core.hold, "r", None, None, ready=True, note=b"secret")
    hold = bench.core.state.sources["r"].hold
    (answer,) = bench.hear(A, wire.Done("r", hold, 1))
    assert isinstance(answer, wire.Failed)


# Checksums


@pytest.mark.parametrize("given", [SUMS, {"sums": SUMS["sums"]}, {"sample": SUMS["sample"]}])
def test_a_done_with_checksums_is_confirmed_once_they_were_compared(bench: Bench, given: dict[str, Any]) -> None:
    hold = bench.hold(tables=HERE)
    bench.claim(A, told=HERE)
    done = wire.Done("r", hold, 1, **given)
    assert bench.hear(A, done) == []
    (asked,) = bench.take(effects.Compare)
    assert (asked.reader, asked.done, asked.named) == (A, done, HERE)
    bench.tell(bench.core.dones.compared, A, "r", None)
    assert bench.said(A) == [wire.Confirmed("r", 1)]
    bench.tell(bench.core.dones.compared, A, "r", None)
    assert bench.said(A) == [], "it is compared no more"


def test_different_checksums_fail_the_attempt(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    done, error = wire.Done("r", hold, 3, **SUMS), errors.ChecksumError("kv differs")
    bench.hear(A, done)
    bench.outputs.clear()
    bench.tell(bench.core.dones.compared, A, "r", error)
    assert bench.said(A) == [wire.Failed("r", error.code, "kv differs", 1, 3)]


def test_a_done_after_the_end_of_its_hold_compares_nothing(bench: Bench) -> None:
    """The blocks may hold another request by then: different checksums would be no fault of the bytes."""
    hold = bench.hold()
    bench.claim(A)
    bench.tell(bench.core.leases.end_due, LEASE)
    bench.outputs.clear()
    (failed,) = bench.hear(A, wire.Done("r", hold, 1, **SUMS))
    assert failed.code == "R046"
    assert bench.take(effects.Compare) == []


def test_a_comparison_that_ends_after_its_hold_is_told_of_the_lease(bench: Bench) -> None:
    """The blocks may hold another request by then."""
    hold = bench.hold()
    bench.claim(A)
    bench.hear(A, wire.Done("r", hold, 1, **SUMS))
    bench.tell(bench.core.leases.end_due, LEASE)
    bench.outputs.clear()
    bench.tell(bench.core.dones.compared, A, "r", errors.ChecksumError("layer 0 differs"))
    assert [(one.code, one.attempt) for one in bench.said(A)] == [("R046", 1)]


@pytest.mark.parametrize("dropped", [False, True])
def test_what_waits_for_its_checksums_is_kept_unless_its_reader_is_gone(bench: Bench, dropped: bool) -> None:
    hold = bench.hold()
    bench.claim(A)
    bench.hear(A, wire.Done("r", hold, 1, **SUMS))
    if dropped:
        bench.tell(bench.core.readers.drop, A, "gone")
    for bench.now in range(1, 25):
        bench.step()
        bench.tell(bench.core.leases.end_due, bench.now)
    assert [one.released.why for one in bench.take(effects.Free)] == (["expired"] if dropped else [])


def test_a_done_with_checksums_renews_its_promise_at_once(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    bench.now = LEASE - 1
    bench.hear(A, wire.Done("r", hold, 1, **SUMS))
    bench.tell(bench.core.leases.end_due, LEASE)
    bench.outputs.clear()
    bench.tell(bench.core.dones.compared, A, "r", None)
    assert bench.said(A) == [wire.Confirmed("r", 1)]


def test_a_comparison_that_outlives_its_hold_keeps_no_later_hold_of_the_name(bench: Bench) -> None:
    hold = bench.hold(tables=HERE)
    bench.claim(A, told=HERE)
    bench.hear(A, wire.Done("r", hold, 1, **SUMS))
    bench.withdraw()
    bench.now = LEASE
    bench.tell(bench.core.leases.end_due, bench.now)
    bench.tell(bench.core.leases.collected, ("r",))
    bench.hold(tables=HERE)
    bench.take(effects.Free)
    for bench.now in range(int(LEASE), int(2 * LEASE) + 1):
        bench.step()
        bench.tell(bench.core.leases.end_due, bench.now)
    assert [one.released.why for one in bench.take(effects.Free)] == ["expired"]


def test_who_leaves_is_compared_no_more(bench: Bench) -> None:
    hold = bench.hold()
    bench.claim(A)
    done = wire.Done("r", hold, 1, **SUMS)
    bench.hear(A, done)
    bench.hear(A, wire.Leave("r"))
    assert [(one.reader, one.request) for one in bench.take(effects.ReaderLeft)] == [(A, "r")]
    bench.tell(bench.core.dones.compared, A, "r", None)
    assert bench.outputs == []


def test_comparisons_are_bounded(bench: Bench) -> None:
    few = Bench(most=1)
    few.meet(A, B)
    hold = few.hold()
    for who in (A, B):
        few.claim(who)
    assert few.hear(A, wire.Done("r", hold, 1, **SUMS)) == []
    for who in (A, B):
        (failed,) = few.hear(who, wire.Done("r", hold, 2, **SUMS))
        assert ("too many checksums" in failed.message, failed.attempt) == (True, 2)


# The core as a value


def test_a_copy_goes_on_by_itself_and_equal_ones_have_equal_snapshots(bench: Bench) -> None:
    bench.hold()
    bench.claim(A)
    other = Bench()
    other.core = copy.deepcopy(bench.core)
    assert hash(snapshot(other.core)) == hash(snapshot(bench.core))
    other.claim(B)
    assert snapshot(other.core) != snapshot(bench.core)
    bench.claim(B)
    assert snapshot(other.core) == snapshot(bench.core)


def test_every_message_is_counted_once(bench: Bench) -> None:
    hold = bench.hold()
    for message in (
        wire.Claim(1, ("r",)),
        wire.Done("r", hold, 1),
        wire.Leave("r"),
        wire.WriteRequest("r", (0, 1), {}, {}, {}),
        wire.Bye(),
    ):
        bench.outputs.clear()
        bench.hear(A, message)
        assert [sum(one.kinds.values()) for one in bench.take(Counted)] == [1], message
        bench.meet(replace(A)) if isinstance(message, wire.Bye) else None


def test_a_chunk_is_offered_to_an_opened_request_only(bench: Bench) -> None:
    for request, text in (("no", "cannot be offered: request no is not held here"), ("whole", "held as a whole")):
        bench.hold("whole", None) if request == "whole" else None
        with pytest.raises(errors.KvplanError, match=text):
            bench.tell(bench.core.offer, request, Chunk((0, 4), False, None, {}))
