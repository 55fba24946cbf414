"""Each message of a prefill worker to a decode core with a request in a known phase."""

from __future__ import annotations

import copy
from dataclasses import replace

from tests.runtime.helpers.snapshot import snapshot
from tests.runtime.protocol.cores import HOLD, Rig, ask, fed

from kvplan.runtime import Sample, errors
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import Refusal
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.loads import Load, LoadPart
from kvplan.runtime.protocol.phases import Phase


def moving(rig: Rig, **facts: bool) -> tuple[Load, LoadPart]:
    """A request that prefill keeps, whose bytes are on their way."""
    asked = ask()
    load = rig.begin(fed(asked) if facts.get("streamed") else asked, **facts)
    (part,) = load.parts
    assert rig.claimed(part) == "answered"
    assert part.phase is Phase.MOVING
    return load, part


def told(rig: Rig) -> tuple[Load, LoadPart]:
    """A request that was read completely, with prefill notified."""
    load, part = moving(rig)
    rig.tell(rig.core.placed, part)
    assert part.phase is Phase.TOLD
    return load, part


def test_a_read_is_claimed_moved_told_and_done() -> None:
    rig = Rig()
    load = rig.begin(ask())
    (part,) = load.parts
    (claim,) = rig.told()
    assert isinstance(claim, wire.Claim)
    assert (claim.requests, claim.streamed, claim.tokens) == (("r",), (), {"r": (0, 12)})
    assert [one.part for one in rig.of(effects.Foresee)] == [part]
    rig.claimed(part)
    (move,) = rig.of(effects.Move)
    assert (move.key, move.layers, move.last, sorted(move.runs)) == (part, None, True, ["kv", "state"])
    rig.tell(rig.core.arrived, part)
    assert rig.told() == [wire.Done("r", HOLD, load.attempt)], "the last copies are made while Done is on its way"
    assert rig.hear(wire.Confirmed("r", load.attempt)) == "confirmed"
    assert not load.ended
    rig.tell(rig.core.placed, part)
    assert ([one.load for one in rig.of(effects.Ended)], load.state) == ([load], "done")
    assert rig.core.loads.ledger.written() == frozenset()


def test_workers_are_told_when_all_of_them_were_read() -> None:
    rig = Rig(workers=2)
    load = rig.begin(ask())
    for part in load.parts:
        rig.claimed(part)
    rig.told()
    rig.tell(rig.core.placed, load.parts[0])
    assert rig.told() == []
    rig.tell(rig.core.placed, load.parts[1])
    assert len(rig.told()) == 2
    assert rig.hear(wire.Confirmed("r", load.attempt), 0) == "confirmed"
    assert (load.state, load.progress) == ("running", 0.999)
    assert rig.hear(wire.Confirmed("r", load.attempt), 1) == "confirmed"
    assert (load.state, load.progress) == ("done", 1.0)


def test_confirmed_is_believed_of_this_attempt_only() -> None:
    rig = Rig()
    load, part = told(rig)
    assert rig.hear(wire.Confirmed("r", load.attempt + 1)) == "stale"
    assert part.phase is Phase.TOLD
    assert rig.hear(wire.Confirmed("r", load.attempt)) == "confirmed"
    assert load.state == "done"
    assert rig.hear(wire.Confirmed("r", load.attempt)) == "unknown"


def test_a_note_is_read_once_the_request_is_confirmed() -> None:
    rig = Rig()
    load, _ = told(rig)
    rig.hear(wire.Confirmed("r", load.attempt + 1, b"of another attempt"))
    assert load.note == b""
    rig.hear(wire.Confirmed("r", load.attempt, b"first token"))
    assert (load.state, load.note) == ("done", b"first token")


def test_the_note_is_that_of_the_first_worker_that_has_one() -> None:
    rig = Rig(workers=3)
    load = rig.begin(ask())
    for part in load.parts:
        rig.claimed(part)
    for part in load.parts:
        rig.tell(rig.core.placed, part)
    for worker, note in ((2, b"third"), (1, b"second"), (0, b"")):
        rig.hear(wire.Confirmed("r", load.attempt, note), worker)
    assert (load.state, load.note) == ("done", b"second")


def test_what_failed_an_earlier_attempt_fails_no_other() -> None:
    rig = Rig()
    load, _ = told(rig)
    assert rig.hear(wire.Failed("r", "R046", "late", 9, load.attempt + 1)) == "stale"
    assert load.state == "running"
    assert rig.hear(wire.Failed("r", "R046", "late", 9, load.attempt)) == "failed"
    assert isinstance(load.error, errors.LeaseError)


def test_what_failed_before_a_request_was_claimed_anew_fails_it_no_more() -> None:
    """Its hold ended, and decode had given it up and asked again: the claim's answer says whether it is held now."""
    rig = Rig()
    load = rig.begin(ask())
    (part,) = load.parts
    assert rig.hear(wire.Failed("r", "R046", "over", part.heartbeat - 1)) == "stale"
    assert load.state == "running"
    assert rig.hear(wire.Failed("r", "R046", "over", part.heartbeat)) == "failed"
    assert isinstance(load.error, errors.LeaseError)


def test_written_is_believed_of_the_same_hold_only() -> None:
    rig = Rig(push=True)
    load, part = moving(rig)
    assert [one.part for one in rig.of(effects.AskWrite)] == [part]
    assert rig.hear(wire.Written("r", HOLD + 1, 1)) == "stale"
    assert part.phase is Phase.MOVING
    assert rig.hear(wire.Written("r", HOLD, 1)) == "written"
    assert (part.phase, load.bytes) == (Phase.TOLD, 1)


def test_written_where_nothing_was_to_be_written_is_not_believed() -> None:
    rig = Rig()
    _, part = moving(rig)
    assert rig.hear(wire.Written("r", HOLD, 1)) == "stale"
    assert part.phase is Phase.MOVING


def test_all_is_written_once_every_buffer_was_returned_full() -> None:
    rig = Rig(push=True)
    load, part = moving(rig)
    asked = wire.AskBuffer("r", 4, None, ())
    assert rig.hear(asked) == "buffer_asked"
    assert [one.message for one in rig.of(effects.Buffer)] == [asked]
    assert rig.hear(wire.ReturnBuffer("r", 5, True)) == "duplicate"
    assert rig.hear(wire.ReturnBuffer("nobody", 4, True)) == "unknown"
    assert rig.hear(wire.ReturnBuffer("r", 4, True)) == "buffer_returned"
    rig.tell(rig.core.returned, part, 4)
    assert rig.hear(wire.ReturnBuffer("r", 4, True)) == "duplicate"
    assert rig.hear(wire.Written("r", HOLD, 9)) == "written"
    assert rig.hear(wire.Confirmed("r", load.attempt)) == "confirmed"
    assert not load.ended, "a copy from the stage is still under way"
    rig.tell(rig.core.placed, part)
    assert load.state == "done"


def test_a_writer_that_returned_a_buffer_empty_has_not_written_all() -> None:
    rig = Rig(push=True)
    load, _ = moving(rig)
    assert rig.hear(wire.AskBuffer("r", 4, None, ())) == "buffer_asked"
    assert rig.hear(wire.ReturnBuffer("r", 4, False)) == "buffer_returned"
    assert rig.hear(wire.Written("r", HOLD, 9)) == "written"
    assert "pieces that it asked buffers for are not" in str(load.error)


def test_nobody_asks_for_buffers_who_was_not_asked_to_write() -> None:
    rig = Rig()
    moving(rig)
    assert rig.hear(wire.AskBuffer("r", 4, None, ())) == "unexpected"
    assert rig.of(effects.Buffer) == []


def test_a_lost_offer_is_seen() -> None:
    rig = Rig()
    load, _ = moving(rig, streamed=True)
    tables = wire.pack(ask().prefill)
    assert rig.hear(wire.Offer("r", HOLD + 1, 0, (0, 4), None, tables, False)) == "stale"
    assert rig.hear(wire.Offer("r", HOLD, 0, (0, 4), None, tables, False)) == "offered"
    assert rig.hear(wire.Offer("r", HOLD, 0, (0, 4), None, tables, False)) == "duplicate"
    assert [one.last for one in rig.of(effects.Move)] == [False]
    assert rig.hear(wire.Offer("r", HOLD, 2, (8, 12), None, tables, True)) == "unexpected"
    assert isinstance(load.error, errors.TransferError)
    assert "offer 2 came where number 1 was due" in str(load.error)


def test_a_request_that_is_told_of_as_over_is_claimed_no_more() -> None:
    rig = Rig()
    moving(rig)
    rig.told()
    rig.tick(6)
    (claim,) = rig.told()
    assert isinstance(claim, wire.Claim)
    assert claim.requests == ("r",)
    (part,) = rig.core.loads.running["r"].parts
    rig.tell(rig.core.placed, part)
    rig.told()
    rig.tick(6)
    (claim,) = rig.told()
    assert isinstance(claim, wire.Claim)
    assert claim.requests == ()


def test_a_request_that_is_held_anew_meanwhile_is_not_read_on() -> None:
    rig = Rig()
    load, part = moving(rig)
    assert rig.hear(wire.ClaimAnswers(part.heartbeat + 1, 6.0, (wire.Claimed("r", HOLD),))) == "answered"
    assert rig.hear(wire.ClaimAnswers(part.heartbeat - 1, 6.0, (wire.Claimed("r", HOLD + 1),))) == "answered"
    assert load.state == "running"
    assert rig.hear(wire.ClaimAnswers(part.heartbeat + 2, 6.0, (wire.Claimed("r", HOLD + 1),))) == "answered"
    assert isinstance(load.error, errors.LeaseError)


def test_a_request_that_is_asked_for_again_goes_by_no_answer_to_the_one_before() -> None:
    """Its engine may have said that it is lost, which offer came last, or that it stopped, before it heard of it."""
    rig = Rig()
    before, part = moving(rig, streamed=True)
    rig.fail(before, errors.CancelledTransferError("cancelled"))
    rig.tell(rig.core.settled, part)
    rig.tick()
    load = rig.begin(fed(ask("r", 20)), streamed=True)
    lost = wire.Lost("r", wire.LossReason.WITHDRAWN, "withdrawn")
    rig.hear(wire.ClaimAnswers(part.heartbeat, 6.0, (lost,)))
    rig.hear(wire.Offer("r", HOLD, 0, (0, 12), None, wire.pack(ask().prefill), True))
    rig.hear(wire.Stopped("r", lost=False))
    assert (load.state, load.parts[0].phase) == ("running", Phase.CLAIMING)
    assert rig.of(effects.Move) == []


def test_a_writer_that_stopped_before_it_was_asked_again_may_still_write() -> None:
    """Stopped is about an earlier attempt: the blocks of the one that was given up since stay in quarantine."""
    rig = Rig(push=True)
    before, _ = moving(rig)
    rig.fail(before, errors.CancelledTransferError("cancelled"))
    assert rig.hear(wire.Stopped("r", lost=False)) == "stopped"
    rig.tick()
    after, _ = moving(rig)
    rig.fail(after, errors.CancelledTransferError("cancelled"))
    rig.tick()
    assert rig.core.loads.ledger.quarantined()


def test_a_request_that_is_held_late_is_claimed_with_its_blocks_once_more() -> None:
    rig = Rig()
    (part,) = rig.begin(ask()).parts
    rig.told()
    for held, claims in ((True, 0), (False, 0), (False, 0), (True, 1), (True, 0)):
        rig.hear(wire.ClaimAnswers(part.heartbeat, 6.0, (wire.NotYet("r", held),)))
        assert len(rig.told()) == claims
    assert part.phase is Phase.CLAIMING


def test_a_request_that_nobody_holds_in_time_fails() -> None:
    rig = Rig()
    load = rig.begin(ask(), hold_within=5.0)
    (part,) = load.parts
    rig.tick(5)
    assert not load.ended, "prefill has not said that it does not hold it"
    rig.hear(wire.ClaimAnswers(part.heartbeat, 6.0, (wire.NotYet("r", False),)))
    assert isinstance(load.error, errors.LeaseError)
    assert "is not held by prefill workers [0] 5 s after they were asked" in str(load.error)


def test_a_deadline_may_be_reached_and_not_passed() -> None:
    rig = Rig()
    load, part = moving(rig)
    rig.tick(20)
    assert not load.ended
    rig.tick(0.1)
    assert isinstance(load.error, errors.DeadlineError)
    assert [one.key for one in rig.of(effects.Stop)] == [part]


def test_a_deadline_says_that_bytes_are_still_being_copied() -> None:
    rig = Rig()
    load, part = moving(rig)
    rig.tell(rig.core.arrived, part)
    assert rig.hear(wire.Confirmed("r", load.attempt)) == "confirmed"
    rig.tick(21)
    text = "prefill worker 0 has confirmed it, and its bytes are still being copied from the stage"
    assert text in str(load.error)
    assert rig.core.loads.quarantine.keeps(load)
    rig.tell(rig.core.settled, part)
    rig.tick()
    assert not rig.core.loads.quarantine.keeps(load)


def test_a_deadline_names_the_workers_that_are_late() -> None:
    rig = Rig(workers=2)
    load = rig.begin(ask())
    one, other = load.parts
    rig.claimed(one)
    rig.tell(rig.core.placed, one)
    assert one.phase is Phase.ARRIVED
    rig.tick(21)
    assert str(load.error).endswith("prefill worker 1 has not confirmed that it holds all of it")
    assert other.phase is Phase.LEAVING


def test_checksums_are_sent_once_they_are_computed() -> None:
    rig = Rig()
    load = rig.begin(ask(), sample=Sample(every=3, seed=7))
    (part,) = load.parts
    rig.claimed(part)
    rig.told()
    rig.tell(rig.core.arrived, part)
    assert rig.of(effects.Sum) == []
    rig.tell(rig.core.placed, part)
    assert [one.part for one in rig.of(effects.Sum)] == [part]
    assert rig.told() == []
    rig.tell(rig.core.summed, part, (("kv", 3, 1),))
    (done,) = rig.told()
    assert isinstance(done, wire.Done)
    assert (done.sums, done.sample) == ((("kv", 3, 1),), (3, 7))
    assert part.phase is Phase.TOLD


def test_a_claim_that_could_not_be_sent_fails_its_request_and_a_renewal_does_not() -> None:
    rig = Rig()
    load, part = moving(rig)
    gone = errors.PeerLostError("its line is broken")
    rig.tell(rig.core.unsent, part.peer, wire.Claim(part.heartbeat + 1, ("r",)), gone)
    assert not load.ended
    rig.tell(rig.core.unsent, part.peer, wire.Claim(part.heartbeat, ("r",)), gone)
    assert "request r, prefill worker 0: its line is broken" in str(load.error)


def test_a_peer_that_does_not_know_this_worker_is_lost() -> None:
    rig = Rig()
    refusal = Refusal("R042", "who are you?", False, b"")
    (lost,) = rig.tell(rig.core.hear, rig.engine, rig.engine.peers[0], refusal, rig.now)
    assert isinstance(lost, effects.EngineLost)
    assert "does not know this worker any more: who are you?" in str(lost.error)


def test_what_all_have_confirmed_outlives_its_engine() -> None:
    rig = Rig()
    load, part = moving(rig)
    other = rig.begin(ask("s", 20))
    rig.tell(rig.core.arrived, part)
    rig.hear(wire.Confirmed("r", load.attempt))
    rig.tell(rig.core.drop, rig.engine, "it restarted")
    assert (load.ended, str(other.error)) == (False, "request s: it restarted")
    rig.tell(rig.core.placed, part)
    assert load.state == "done"


def test_a_request_of_which_nobody_has_anything_is_done_at_once() -> None:
    rig = Rig()
    rig.engine = replace(rig.engine, peers=())
    assert rig.begin(ask()).state == "done"
    assert rig.core.loads.ledger.written() == frozenset()


def test_nothing_of_a_request_is_kept_once_it_has_ended() -> None:
    rig, sizes = Rig(), list[int]()
    for number in range(20):
        load = rig.begin(ask(f"r{number}"), seconds=1e6, hold_within=1e5)
        (part,) = load.parts
        rig.claimed(part)
        rig.tell(rig.core.placed, part)
        assert rig.hear(wire.Confirmed(part.request, load.attempt)) == "confirmed"
        sizes.append(len(repr(snapshot(rig.core))))
    assert max(sizes) - min(sizes) < 20, "but for the digits of numbers"


def test_a_copy_of_a_core_goes_on_by_itself() -> None:
    rig = Rig()
    load, part = told(rig)
    other = copy.deepcopy(rig.core)
    assert other.loads.running["r"].engine.pair is load.engine.pair, "what never changes is shared"
    rig.hear(wire.Confirmed("r", load.attempt))
    assert (load.state, part.phase) == ("done", Phase.CONFIRMED)
    assert [one.phase for one in other.loads.running["r"].parts] == [Phase.TOLD]
