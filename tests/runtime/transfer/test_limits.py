"""Limits of transfers in flight: they are never exceeded, peers take turns, and nothing is lost."""

from __future__ import annotations

import sys
from collections import Counter
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvplan.runtime.errors import LimitedError
from kvplan.runtime.transfer import limits as module
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits

SMALL = Limits(bytes_per_peer=10, bytes_total=25, slice_bytes=10)
ALL = 1 << 40


def gate(*jobs: tuple[str, str, int, int], limits: Limits = SMALL) -> AdmissionQueue[int]:
    made = AdmissionQueue[int](limits)
    for job in jobs:
        made.want(*job)
    return made


@pytest.mark.parametrize("name", ["bytes_per_peer", "bytes_total", "slice_bytes", "requests"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "7", None])
def test_what_is_no_limit_is_refused(name: str, value: object) -> None:
    with pytest.raises(LimitedError, match=f"the limit {name} is {value!r}"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_limits_that_cannot_both_be_met_are_refused() -> None:
    with pytest.raises(LimitedError, match="slice_bytes is 11, above bytes_per_peer, 10"):
        Limits(10, 20, 11)
    with pytest.raises(LimitedError, match="bytes_per_peer is 30, above bytes_total, 20"):
        Limits(30, 20, 11)


def test_the_requests_of_a_peer_take_turns() -> None:
    jobs = [("p", request, 1, n) for n, request in enumerate("aaaabbc")]
    assert gate(*jobs).admit(ALL) == [0, 4, 6, 1, 5, 2, 3]


def test_a_peer_at_its_limit_does_not_hold_up_others() -> None:
    made = gate(("p", "a", 8, 0), ("p", "a", 8, 1), ("q", "b", 7, 2), ("q", "b", 1, 3))
    assert made.admit(ALL) == [0, 2, 3]
    assert made.in_flight() == 16
    made.done(0)
    made.done(0)
    assert made.admit(ALL) == [1]


def test_limits_may_be_used_up() -> None:
    made = gate(("p", "a", 4, 0), ("p", "a", 6, 1), ("q", "a", 10, 2), ("r", "a", 5, 3))
    assert made.admit(ALL) == [0, 2, 3, 1]
    assert made.in_flight() == 25


def test_a_job_above_the_limit_of_a_peer_goes_alone_there() -> None:
    made = gate(("p", "a", 1, 0), ("p", "a", 12, 1), ("p", "a", 1, 2), ("q", "b", 5, 3))
    assert made.admit(ALL) == [0, 3]
    made.done(0)
    assert made.admit(ALL) == [1]
    made.done(1)
    assert made.admit(ALL) == [2]


def test_a_dropped_request_keeps_what_is_in_flight() -> None:
    made = gate(("p", "a", 10, 0), ("p", "a", 10, 1), ("p", "b", 10, 2), ("q", "a", 10, 3), ("q", "a", 10, 4))
    assert made.admit(ALL) == [0, 3]
    for peer in ("q", "p", "p", "nobody"):
        made.drop_request("a", peer)
    assert (made.in_flight(), len(made.tokens())) == (20, 3)
    made.done(0)
    assert made.admit(ALL) == [2]


def test_waiting_is_bounded_by_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    made = gate(("p", "a", 10, 0), ("p", "a", 10, 1), ("q", "a", 10, 2))
    with pytest.raises(LimitedError, match="2 jobs of peer p wait"):
        made.want("p", "b", 1, 3)
    made.admit(ALL)
    made.want("p", "b", 1, 3)


def test_nothing_is_left_of_what_is_over() -> None:
    made = gate(*((f"p{n % 7}", f"r{n}", n % 12, n) for n in range(300)))
    made.drop_request("r3", "p3")
    for _ in range(300):
        for token in made.admit(ALL):
            made.done(token)
    assert vars(made) == vars(gate())


class Jobs(RuleBasedStateMachine):
    """Any order of calls: within the limits, each job admitted once, in the order of its request, and never none."""

    peers, requests = st.sampled_from("pqr"), st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.serial = AdmissionQueue[int](SMALL), 0
        self.waiting: dict[int, tuple[str, str, int]] = {}
        self.flying: dict[int, tuple[str, str, int]] = {}

    @rule(peer=peers, request=requests, size=st.integers(0, 32), count=st.integers(1, 3))
    def want(self, peer: str, request: str, size: int, count: int) -> None:
        for _ in range(count):
            self.waiting[self.serial] = (peer, request, size)
            self.gate.want(peer, request, size, self.serial)
            self.serial += 1

    @rule()
    def admit(self) -> None:
        for token in self.gate.admit(ALL):
            job = self.waiting.pop(token)
            assert not [other for other, them in self.waiting.items() if them[:2] == job[:2] and other < token]
            self.check_room(job)
            self.flying[token] = job
        assert self.flying or not self.waiting, "jobs wait, and nothing is in flight"
        assert self.gate.admit(ALL) == []

    def check_room(self, job: tuple[str, str, int]) -> None:
        for scope, limit in ((self.bytes(job[0]), SMALL.bytes_per_peer), (self.bytes(), SMALL.bytes_total)):
            assert scope == 0 or scope + job[2] <= limit

    def bytes(self, peer: str | None = None) -> int:
        return sum(size for where, _, size in self.flying.values() if peer in (None, where))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.flying)))
        del self.flying[token]
        self.gate.done(token)

    @rule(request=requests, peer=peers)
    def drop_request(self, request: str, peer: str) -> None:
        gone = {token for token, job in self.waiting.items() if job[:2] == (peer, request)}
        self.gate.drop_request(request, peer)
        assert set(self.gate.tokens()) == {*self.flying, *self.waiting} - gone
        self.waiting = {token: job for token, job in self.waiting.items() if token not in gone}

    @invariant()
    def counts_agree(self) -> None:
        assert self.gate.in_flight() == self.bytes()
        assert len(self.gate.tokens()) == len(self.waiting) + len(self.flying)

    def teardown(self) -> None:
        """All that waits gets in as the rest ends."""
        for _ in range(len(self.waiting) + 1):
            self.admit()
            for token in list(self.flying):
                del self.flying[token]
                self.gate.done(token)
        assert not self.waiting


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=60, stateful_step_count=30)


@given(
    st.integers(0, 1 << 64), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 9, 11, 30]), st.integers(0, 3)
)
def test_no_job_starves_while_others_keep_asking(seed: int, peers: int, requests: int, size: int, ahead: int) -> None:
    """The others always have jobs waiting; ours is admitted after a bounded number of theirs."""
    chance, made, owner, flying = Random(seed), AdmissionQueue[int](SMALL), dict[int, tuple[str, str]](), set[int]()

    def want(peer: str, request: str) -> None:
        owner[len(owner)] = (peer, request)
        made.want(peer, request, chance.randint(1, 12), len(owner) - 1)

    everyone = [(f"p{n}", f"r{m}") for n in range(peers) for m in range(requests)]
    for pair in everyone * (ahead + 1):
        want(*pair)
    flying.update(made.admit(ALL))
    made.want("p0", "r0", size, -1)
    waited = 0
    while -1 not in flying:
        token = chance.choice(sorted(flying))
        flying.remove(token)
        made.done(token)
        want(*owner[token])
        flying.update(made.admit(ALL))
        waited += 1
        # Each turn of p0 takes one job of every peer, and each of ours one of every request of p0; 25 may be in flight.
        assert waited <= 25 + (ahead + 2) * requests * (peers * 25), "starved"


def test_peers_that_always_want_get_as_many_turns() -> None:
    made = AdmissionQueue[tuple[str, int]](Limits(bytes_per_peer=25, bytes_total=25, slice_bytes=5))
    for peer, requests in (("p", 1), ("q", 5), ("r", 50)):
        for n in range(300):
            made.want(peer, f"r{n % requests}", 5, (peer, n))
    turns, flying = Counter({"p": 0, "q": 0, "r": 0}), list[tuple[str, int]]()
    while turns.total() < 600:
        admitted = made.admit(ALL)
        turns.update(peer for peer, _ in admitted)
        flying += admitted
        assert max(turns.values()) - min(turns.values()) <= 1
        made.done(flying.pop(0))


def work(count: int) -> int:
    """The lines that a gate runs for `count` requests of `count // 10` peers, most of them at their limit."""
    made, lines = AdmissionQueue[int](Limits(bytes_per_peer=10, bytes_total=500, slice_bytes=10)), 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_code.co_filename == module.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for n in range(count):
            made.want(f"p{n % (count // 10)}", f"r{n}", 10, n)
        done = drain(made)
    finally:
        sys.settrace(before)
    assert sorted(done) == list(range(count))
    return lines


def drain(made: AdmissionQueue[int]) -> list[int]:
    done: list[int] = []
    while admitted := made.admit(ALL):
        for token in admitted:
            made.done(token)
        done += admitted
    return done


def test_ten_thousand_requests_cost_as_much_each_as_a_thousand() -> None:
    assert work(10_000) < 11 * work(1_000)
