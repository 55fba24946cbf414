"""When a request's blocks may be freed: the rules one by one, against a naive model, and from the outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.runtime.helpers.snapshot import snapshot

from kvplan.plan.errors import BadRequestError
from kvplan.runtime.control.messages import Claimed, LossReason, Lost
from kvplan.runtime.errors import HandleError, LimitedError
from kvplan.runtime.protocol import leases as module
from kvplan.runtime.protocol.holds import MOST_RUNS, Claimant
from kvplan.runtime.protocol.leases import Leases, Released

LEASE = 30
TWO = frozenset({0, 1})
A0, A1, B0, B1 = (Claimant(run, "plan", worker) for run in ("a", "b") for worker in (0, 1))
LATER_A0 = replace(A0, connection=1)


def freed(leases: Leases) -> list[Released]:
    """The releases since the last call, which the caller has collected."""
    found = [Released(one.request, one.reason) for one in leases.take_ended()]
    leases.collected(one.request for one in found)
    return found


def claimed(*claimants: Claimant) -> tuple[Leases, int]:
    leases = Leases(LEASE)
    number = leases.hold("r", 0)
    assert [leases.claim("r", claimant, TWO, 0) for claimant in claimants] == [Claimed("r", number)] * len(claimants)
    return leases, number


def reason(answer: Claimed | Lost) -> LossReason:
    """Why a claim is refused."""
    assert isinstance(answer, Lost)
    return answer.reason


def finish(leases: Leases, number: int, *claimants: Claimant) -> list[str]:
    """Why the hold that each claimant names has not lasted, empty where it has."""
    return [leases.done("r", number, claimant, TWO)[1] for claimant in claimants]


def test_released_once_when_all_of_the_contract_are_done() -> None:
    leases, number = claimed(A0, A1)
    assert finish(leases, number, A0) == [""]
    assert freed(leases) == []
    assert leases.held() == 1
    assert [hold.done for hold in leases.holds()] == [((A0.worker, A0.run),)]
    assert finish(leases, number, A1) == [""]
    assert freed(leases) == [Released("r", "finished")]
    assert freed(leases) == []
    assert leases.held() == 0


@pytest.mark.parametrize("other", [B1, Claimant("a", "other", 1)])
def test_half_of_two_runs_or_plans_is_no_whole_one(other: Claimant) -> None:
    leases, number = claimed(A0, other)
    finish(leases, number, A0, other)
    assert leases.held() == 1


@pytest.mark.parametrize("end", ["done", "leave", "expire"])
def test_another_reader_keeps_a_finished_hold(end: str) -> None:
    leases, number = claimed(A0, A1, B0)
    finish(leases, number, A0, A1)
    assert leases.held() == 1
    if end == "done":
        assert finish(leases, number, B0) == [""]
    elif end == "leave":
        assert leases.leave("r", B0) == "left"
    else:
        leases.end_due(LEASE)
    assert freed(leases) == [Released("r", "finished")]


def test_each_strange_done_has_its_name() -> None:
    leases, number = claimed(A0)
    kinds = [
        leases.done("r", number, Claimant("a", "plan", 2), TWO),
        leases.done("r", number + 1, A0, TWO),
        leases.done("r", number, A1, TWO),
        leases.done("other", number, A0, TWO),
    ]
    assert [kind for kind, _ in kinds] == ["unexpected", "stale", "stale", "unknown"]
    assert all(problem for _, problem in kinds)
    assert leases.held() == 1
    assert [leases.done("r", number, A0, TWO)[0] for _ in range(2)] == ["counted", "duplicate"]


def test_claims_are_refused_by_reason() -> None:
    leases, number = claimed(A0, A1)
    for answer, why, text in (
        (leases.claim("other", A0, TWO, 0), LossReason.UNKNOWN, "request other is not held here"),
        (
            leases.claim("r", Claimant("a", "plan", 2), TWO, 0),
            LossReason.UNEXPECTED,
            "decode worker 2 is no reader of this prefill worker",
        ),
    ):
        assert reason(answer) is why
        assert isinstance(answer, Lost)
        assert text in answer.text
    leases.withdraw("r")
    assert reason(leases.claim("r", A0, TWO, 1)) is LossReason.WITHDRAWN
    finish(leases, number, A0, A1)
    assert reason(leases.claim("r", A0, TWO, 1)) is LossReason.FINISHED


def test_few_runs_share_a_hold_and_those_that_are_over_make_room() -> None:
    leases, number = claimed(*(Claimant(f"run{n}", "plan", 0) for n in range(MOST_RUNS)))
    more = Claimant("more", "plan", 0)
    crowded = leases.claim("r", more, TWO, 1)
    assert isinstance(crowded, Lost)
    assert crowded.reason is LossReason.CROWDED
    assert crowded.text.startswith("claimed by run0, run1")
    assert leases.claim("r", Claimant("run0", "plan", 1), TWO, 20) == Claimed("r", number)
    assert reason(leases.claim("r", more, TWO, LEASE)) is LossReason.CROWDED, "a renewal may be unread"
    leases.end_due(LEASE)
    assert leases.claim("r", more, TWO, LEASE) == Claimed("r", number)
    assert leases.done("r", number, Claimant("run1", "plan", 0), TWO)[0] == "stale"
    assert leases.done("r", number, Claimant("run0", "plan", 0), TWO)[1] == ""


def test_a_run_that_has_finished_makes_no_room() -> None:
    one = frozenset({0})
    leases, number = claimed(*(Claimant(f"run{n}", "plan", 0) for n in range(MOST_RUNS)))
    leases.done("r", number, Claimant("run0", "plan", 0), one)
    assert reason(leases.claim("r", Claimant("more", "plan", 0), one, 2)) is LossReason.CROWDED


def test_a_run_that_has_read_a_part_keeps_its_room() -> None:
    """Its done stays counted although its promise has ended for a while."""
    leases, number = claimed(*(Claimant(f"run{n}", "plan", 0) for n in range(MOST_RUNS)))
    assert leases.done("r", number, Claimant("run0", "plan", 0), TWO) == ("counted", "")
    leases.claim("r", Claimant("run1", "plan", 0), TWO, LEASE / 2)
    leases.end_due(LEASE)
    assert leases.claim("r", Claimant("more", "plan", 0), TWO, LEASE) == Claimed("r", number)
    assert leases.claim("r", Claimant("run0", "plan", 1), TWO, LEASE) == Claimed("r", number)
    assert leases.done("r", number, Claimant("run0", "plan", 1), TWO) == ("counted", "")
    leases.end_due(3 * LEASE)
    assert freed(leases) == [Released("r", "finished")]


def test_an_earlier_connection_ends_no_promise_that_was_made_over_a_later_one() -> None:
    leases, number = claimed(A0, A1)
    assert leases.claim("r", LATER_A0, TWO, 1) == Claimed("r", number)
    assert reason(leases.claim("r", A0, TWO, 2)) is LossReason.UNEXPECTED
    assert leases.leave("r", A0) == "stale"
    assert "over this connection" in leases.done("r", number, A0, TWO)[1]
    (hold,) = leases.holds()
    assert hold.promises == ((0, "a", LEASE + 1), (1, "a", LEASE))
    assert finish(leases, number, A1, LATER_A0) == ["", ""]
    assert freed(leases) == [Released("r", "finished")]


def test_a_later_connection_gives_up_what_an_earlier_one_has_claimed() -> None:
    leases, _ = claimed(A0)
    leases.withdraw("r")
    assert leases.leave("r", LATER_A0) == "left"
    assert freed(leases) == [Released("r", "withdrawn")]


def test_a_renewal_is_of_one_hold_and_of_whom_it_is_promised_to() -> None:
    leases, number = claimed(A0)
    leases.renew("r", number, A1, 5)
    leases.renew("r", number + 1, A0, 5)
    assert leases.holds()[0].until == LEASE
    leases.renew("r", number, A0, 5)
    assert (leases.holds()[0].until, leases.holds()[0].promises) == (LEASE + 5, ((0, "a", LEASE + 5),))
    leases.withdraw("r")
    leases.renew("r", number, A0, 6)
    leases.end_due(LEASE + 5)
    assert freed(leases) == [Released("r", "withdrawn")]


def test_what_has_ended_is_promised_and_confirmed_no_more() -> None:
    leases, number = claimed(A0)
    assert [leases.lasts("r", one) for one in (number, number + 1)] == [True, False]
    leases.end_due(LEASE)
    assert not leases.lasts("r", number)
    assert finish(leases, number, A0)[0]
    assert reason(leases.claim("r", A0, TWO, 31)) is LossReason.EXPIRED
    with pytest.raises(HandleError, match="is held: use its name again when"):
        leases.hold("r", 32)
    leases.withdraw("r")
    assert freed(leases) == [Released("r", "expired")]


def test_held_again_only_when_the_release_was_reported() -> None:
    leases, number = claimed(A0, A1)
    with pytest.raises(HandleError, match="request r is held"):
        leases.hold("r", 1)
    finish(leases, number, A0, A1)
    with pytest.raises(HandleError, match="reported"):
        leases.hold("r", 1)
    freed(leases)
    again = leases.hold("r", 1)
    assert again != number
    assert leases.claim("r", A0, TWO, 1) == Claimed("r", again)
    assert leases.done("r", number, A0, TWO)[0] == "stale"
    assert Leases(1, first=7).hold("r", 0) == 7


def test_what_is_declined_was_never_held() -> None:
    """A late Done of an earlier hold of the name is not told of a hold that there is not."""
    leases, number = claimed(A0, A1)
    with pytest.raises(HandleError, match="request r is held"):
        leases.decline("r")
    finish(leases, number, A0, A1)
    with pytest.raises(HandleError, match="reported"):
        leases.decline("r")
    freed(leases)
    leases.decline("r")
    assert (leases.held(), freed(leases)) == (0, [])
    text = "the prefill engine has declined request r: ask another engine, or compute it"
    assert leases.done("r", number, A0, TWO) == ("stale", text)
    assert leases.claim("r", A0, TWO, 1) == Lost("r", LossReason.WITHDRAWN, text)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 3)
    leases = Leases(1, most=2)
    for n in range(5000):
        leases.hold(f"r{n}", n)
        leases.withdraw(f"r{n}")
        freed(leases)
    reasons = [reason(leases.claim(f"r{n}", A0, TWO, 5000)) for n in (4996, 4997, 4999)]
    assert reasons == [LossReason.UNKNOWN, LossReason.WITHDRAWN, LossReason.WITHDRAWN]
    assert len(leases.past) == 3
    assert len(repr(snapshot(leases))) < 60_000, "alarms of holds that have ended are forgotten"
    leases.hold("a", 5001)
    leases.hold("b", 5001)
    with pytest.raises(LimitedError, match="2 requests are held"):
        leases.hold("c", 5001)
    leases.end_due(5002)
    with pytest.raises(LimitedError, match="not yet taken"):
        leases.hold("c", 5002)


def hold_and_withdraw(leases: Leases, request: str) -> None:
    leases.hold(request, 0)
    leases.withdraw(request)


@pytest.mark.parametrize("refuse", [hold_and_withdraw, Leases.decline])
def test_refused_again_is_remembered_anew(
    refuse: Callable[[Leases, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 3)
    leases = Leases(LEASE)
    for request in "abcad":
        refuse(leases, request)
        freed(leases)
    reasons = [reason(leases.claim(request, A0, TWO, 0)) for request in "ab"]
    assert reasons == [LossReason.WITHDRAWN, LossReason.UNKNOWN]


def test_messages_make_no_state() -> None:
    leases = Leases(LEASE)
    for n in range(100):
        leases.claim(f"r{n}", A0, TWO, 0)
        leases.done(f"r{n}", n, A0, TWO)
        leases.leave(f"r{n}", A0)
    assert (leases.held(), freed(leases), len(leases.past)) == (0, [], 0)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "30", None, True])
def test_a_lease_of_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(
        BadRequestError, match=f"a lease is a number of seconds from 0.01 to 1,000,000, not {seconds!r}"
    ):
        Leases(seconds)


Fact = tuple[float, str, Claimant | None]


def ending(facts: list[Fact], now: float) -> tuple[str, set[tuple[str, str]]]:
    """Why a hold with these facts has ended at `now`, if it has, and which pairs have finished it; all read afresh."""
    done = {who for _, what, who in facts if what == "done" and who}
    pairs = {
        who.run_and_plan
        for who in done
        if {other.worker for other in done if other.run_and_plan == who.run_and_plan} == TWO
    }
    reading = any(
        at + LEASE > now and what == "claim" and not silent(facts, n) for n, (at, what, _) in enumerate(facts)
    )
    over = max(at for at, what, _ in facts if what in ("hold", "offer", "claim")) + LEASE <= now
    if pairs and (over or not reading):
        return "finished", pairs
    if any(what == "withdraw" for _, what, _ in facts) and (over or not reading):
        return "withdrawn", pairs
    return "expired" if over else "", pairs


def silent(facts: list[Fact], claim: int) -> bool:
    """Whether the claimant said after its claim that it reads no more."""
    return any(who == facts[claim][2] and what in ("done", "leave") for _, what, who in facts[claim + 1 :])


class AgainstTheModel(RuleBasedStateMachine):
    """The model keeps all that was ever said of a hold, and reads it from the beginning each time."""

    requests = st.sampled_from(["x", "y", "z"])
    claimants = st.sampled_from([A0, LATER_A0, A1, B0, B1, Claimant("a", "other", 0), Claimant("a", "plan", 7)])

    def __init__(self) -> None:
        super().__init__()
        self.leases, self.now, self.expired = Leases(LEASE, most=2), 0, 0
        self.facts: dict[str, list[Fact]] = {}
        self.numbers: dict[str, int] = {}
        self.ended: dict[str, tuple[int, str, set[tuple[str, str]]]] = {}
        self.reported: list[Released] = []
        self.used: set[int] = set()
        self.freed: set[int] = set()

    def sweep(self) -> None:
        for request, facts in list(self.facts.items()):
            why, pairs = ending(facts, self.expired)
            if why:
                self.ended[request] = (self.numbers[request], why, pairs)
                self.freed.add(self.numbers[request])
                self.reported.append(Released(request, why))
                del self.facts[request]

    def open(self, request: str) -> bool:
        return request in self.facts

    def note(self, request: str, what: str, who: Claimant | None = None) -> None:
        self.facts[request].append((self.now, what, who))
        self.sweep()

    @rule(seconds=st.sampled_from([0, 1, 5, 10, 29, 30, 31]), late=st.none() | st.integers(0, 40))
    def wait(self, seconds: int, late: int | None) -> None:
        """Time passes; leases end that were over when all was heard, so many seconds ago, or when they are next let."""
        self.now += seconds
        if late is not None:
            self.expire(late)

    def expire(self, late: int = 0) -> None:
        self.leases.end_due(self.now - late)
        self.expired = max(self.expired, self.now - late)
        self.sweep()

    @rule(request=requests)
    def hold(self, request: str) -> None:
        unreported = {released.request for released in self.reported}
        if request in self.facts or request in unreported:
            with pytest.raises(HandleError):
                self.leases.hold(request, self.now)
        elif len(self.facts) + len(unreported) >= 2:
            with pytest.raises(LimitedError):
                self.leases.hold(request, self.now)
        else:
            number = self.numbers[request] = self.leases.hold(request, self.now)
            assert number not in self.used
            self.used.add(number)
            self.facts[request] = [(self.now, "hold", None)]

    @rule(request=requests)
    def offer(self, request: str) -> None:
        if self.open(request):
            self.leases.offered(request, self.now)
            self.note(request, "offer")

    @rule(request=requests, who=claimants)
    def claim(self, request: str, who: Claimant) -> None:
        answer = self.leases.claim(request, who, TWO, self.now)
        withdrawn = any(what == "withdraw" for _, what, _ in self.facts.get(request, []))
        if who.worker not in TWO or not self.open(request) or withdrawn or self.outdated(request, who):
            assert isinstance(answer, Lost)
            return
        assert answer == Claimed(request, self.numbers[request])
        self.note(request, "claim", who)

    @rule(request=requests, who=claimants, of=requests)
    def done(self, request: str, who: Claimant, of: str) -> None:
        number = self.numbers.get(of, 17)
        counted, problem = self.leases.done(request, number, who, TWO)
        kind = self.kind(request, who, number)
        assert counted == kind
        held = self.open(request) and kind in ("counted", "duplicate")
        assert (problem == "") == held
        assert not held or number not in self.freed, "kept, but freed before"
        if held:
            self.note(request, "done", who)

    def kind(self, request: str, who: Claimant, number: int) -> str:
        if who.worker not in TWO:
            return "unexpected"
        if request not in self.facts and request not in self.ended:
            return "unknown"
        if number != self.numbers[request]:
            return "stale"
        if not self.open(request):
            pairs = ending(self.facts[request], self.expired)[1] if request in self.facts else self.ended[request][2]
            return "duplicate" if who.run_and_plan in pairs else "late"
        said = self.said(request, who)
        if "claim" not in said or self.outdated(request, who):
            return "stale"
        return "duplicate" if said[-1] != "claim" and "done" in said else "counted"

    def said(self, request: str, who: Claimant) -> list[str]:
        """All facts that a claimant stated, over any connection."""
        return [what for _, what, other in self.facts[request] if other == who]

    def outdated(self, request: str, who: Claimant) -> bool:
        """Whether a claimant has spoken over a later connection."""
        same = (other for _, _, other in self.facts[request] if other is not None and other == who)
        return any(other.connection > who.connection for other in same)

    @rule(request=requests, who=claimants)
    def leave(self, request: str, who: Claimant) -> None:
        kind = self.leases.leave(request, who)
        if not self.open(request):
            assert kind == ("late" if request in self.facts or request in self.ended else "unknown")
        elif "claim" not in self.said(request, who) or self.outdated(request, who):
            assert kind == "stale"
        else:
            assert kind == "left"
            self.note(request, "leave", who)

    @rule(request=requests, who=claimants, of=requests)
    def renew(self, request: str, who: Claimant, of: str) -> None:
        """A comparison goes on: it renews as a claim does, but one hold alone, and what was promised alone."""
        number = self.numbers.get(of, 17)
        self.leases.renew(request, number, who, self.now)
        if not self.open(request) or number != self.numbers[request] or self.outdated(request, who):
            return
        if "claim" in self.said(request, who) and "withdraw" not in [what for _, what, _ in self.facts[request]]:
            self.note(request, "claim", who)

    @rule(request=requests)
    def withdraw(self, request: str) -> None:
        if request not in self.facts and request not in self.ended:
            with pytest.raises(HandleError):
                self.leases.withdraw(request)
            return
        self.leases.withdraw(request)
        if self.open(request):
            self.note(request, "withdraw")

    @rule()
    def take(self) -> None:
        self.expire()
        assert self.leases.held() == len(self.facts)
        key = attrgetter("request")
        assert sorted(freed(self.leases), key=key) == sorted(self.reported, key=key)
        self.reported = []

    @invariant()
    def none_is_released_early(self) -> None:
        assert self.leases.held() >= len(self.facts)


def test_kept_means_held_from_the_first_read_to_the_last() -> None:
    """A reader that knew a hold's number before its first read learns if the hold lasted, whatever the clock does."""
    run_state_machine_as_test(AgainstTheModel, settings=settings(max_examples=150, stateful_step_count=40))
