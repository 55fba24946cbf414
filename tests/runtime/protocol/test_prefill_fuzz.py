"""Anything at all, in any order, is told to a prefill core: nothing raises, and what it promises stays true."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.helpers.snapshot import snapshot
from tests.runtime.protocol.prefill_bench import END, HERE, THERE, Bench, blocks, reader

from kvplan.plan.types import Blocks
from kvplan.runtime import errors
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.messages import Claim, ClaimAnswers, Claimed, Done, Leave, Offer, WriteRequest, pack
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.effects import Free, Move, Output, Send, Stop, WriteKey
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.transfer.chunks import Chunk

NAMES = ("r", "r", "r", "s", "t", "")
EDGES = (0, 1, -1, 4, 8, END, 2**31, 2**62, 2**63 - 1, -(2**63))


class Call(NamedTuple):
    """A call of a core, or of a part of it, as a value: `act` is its name, from the core on."""

    act: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]

    def make(self, core: PrefillCore) -> None:
        """Make the call; an error that refuses a caller's command is no fault."""
        with suppress(errors.KvplanError):
            attrgetter(self.act)(core)(*self.arguments, **self.named)


def call(act: str, *arguments: Any, **named: Any) -> Call:
    return Call(act, arguments, named)


class Fuzz:
    """A core, a driver that carries nothing out but says what might have come of it, and the laws."""

    def __init__(self, seed: int) -> None:
        self.dice, self.bench = Random(seed), Bench(most=3, first_pin=5)
        self.readers = [reader(worker, run, push) for worker in (0, 1) for run in ("a", "b") for push in (False, True)]
        self.pins: dict[int, str] = {}
        self.freed: set[int] = set()
        # Writes that were begun and are not over, and those of them that were stopped.
        self.moving: dict[WriteKey, int] = {}
        self.stopped: set[WriteKey] = set()
        self.comparing: list[effects.Compare] = []
        # The pins that a reader was done with, as it said of a request.
        self.dones = defaultdict[tuple[Reader, str], set[int]](set)
        self.late: list[Call] = []
        self.counts: Counter[str] = Counter()

    def run(self, steps: int = 150) -> Counter[str]:
        for _ in range(steps):
            self.bench.now += self.dice.choices((0.0, 0.1, 2.0, -3.0, 11.0), (60, 30, 10, 2, 1))[0]
            given = self.draw()
            again = self.dice.random() < 0.1
            for one in (given, given) if again else (given,):
                self.tell(one)
            if self.dice.random() < 0.15:
                self.late.append(given)
            if self.late and self.dice.random() < 0.1:
                self.tell(self.late.pop(self.dice.randrange(len(self.late))))
        return self.counts

    def tell(self, given: Call) -> None:
        """Make a step, check its outputs, and remember them like a driver that may lose messages."""
        before = {hold.request: hold for hold in self.bench.core.leases.holds()}
        if given.act in ("writes.moved", "writes.settled"):
            key = given.arguments[0]
            if not given.named.get("abandoned"):
                self.moving.pop(key, None)
                self.stopped.discard(key)
            else:
                # Nothing of it reads blocks here any more.
                self.moving[key] = -1
        if given.act == "inbox.hear" and isinstance(given.arguments[1], Done):
            self.dones[given.arguments[0], given.arguments[1].request].add(given.arguments[1].pin)
        outputs = self.bench.tell(given.make, self.bench.core)
        self.look(given, outputs, before)

    def look(self, given: Call, outputs: list[Output], before: dict[str, Any]) -> None:
        state = self.bench.core.state
        self.one_answer_a_claim(given, outputs)
        for one in outputs:
            self.counts[type(one).__name__] += 1
            if isinstance(one, Move):
                assert one.key not in self.stopped, "nothing is posted after Stop"
                self.moving[one.key] = next(w.source.pin for w in self.bench.core.writes if w.key == one.key)
            elif isinstance(one, Stop):
                self.stopped.add(one.key)
            elif isinstance(one, effects.Compare):
                self.comparing.append(one)
            elif isinstance(one, Free) and one.released.request in before:
                self.free(before[one.released.request])
            elif isinstance(one, Send):
                assert one.peer in state.sessions or any(isinstance(o, effects.Drop) for o in outputs)
                self.lasted(one.peer, one.message, before)
        for hold in state.leases.holds():
            assert self.pins.setdefault(hold.pin, hold.request) == hold.request, "a pin's number is of one hold"
            assert hold.pin not in self.freed
            writers = [w for w in self.bench.core.writes if w.source.pin == hold.pin and w.phase.name != "BURIED"]
            assert hold.writers == len(writers)
        for write in self.bench.core.writes:
            assert write.reader in state.sessions if write.writing else write.key in self.stopped
        assert set(state.sources) <= {hold.request for hold in state.leases.holds()}
        assert state.out == []

    def lasted(self, who: Reader, said: Any, before: dict[str, Any]) -> None:
        """A message that reports a good read or write has a pin that existed until now."""
        if isinstance(said, wire.Confirmed):
            assert before[said.request].pin in self.dones[who, said.request]
            assert before[said.request].phase != "over"
        if isinstance(said, wire.Written):
            assert (before[said.request].pin, before[said.request].phase != "over") == (said.pin, True)

    def free(self, hold: Any) -> None:
        """A release, of what was held before the step."""
        assert hold.pin not in self.freed, "a pin is released once"
        self.freed.add(hold.pin)
        assert hold.pin not in self.moving.values(), "what is being written is not free"

    def one_answer_a_claim(self, given: Call, outputs: list[Output]) -> None:
        if given.act != "inbox.hear" or not isinstance(given.arguments[1], Claim):
            return
        who, claim = given.arguments[:2]
        said = [one.message for one in outputs if isinstance(one, Send) and one.peer is who]
        answers = [one for one in said if isinstance(one, ClaimAnswers)]
        if who not in self.bench.core.state.sessions:
            return
        assert [[answer.request for answer in one.answers] for one in answers] == [list(claim.requests)]
        for answer in answers[0].answers:
            hold = {hold.request: hold for hold in self.bench.core.leases.holds()}.get(answer.request)
            if isinstance(answer, Claimed):
                assert hold is not None
                assert (hold.pin, hold.phase) == (answer.pin, "held")
                reads = (who.claimant.worker, who.claimant.run)
                assert reads in [(worker, run) for worker, run, _ in hold.promises]

    # The possible calls

    def draw(self) -> Call:
        kinds = [self.sensible] * 10 + [self.heard] * 6 + [self.command] * 3 + [self.fact] * 4 + [self.completion] * 4
        return self.dice.choice(kinds)()

    def sensible(self) -> Call:
        """The next call of a correct driver or reader."""
        state = self.bench.core.state
        if not state.sources:
            return call("hold", "r", self.dice.choice((None, (0, END))), None, ready=True)
        request, source = self.dice.choice(list(state.sources.items()))
        who = self.who()
        session = state.sessions.get(who)
        if session is None:
            return self.met()
        if request not in session.claims:
            return call(
                "inbox.hear", who, Claim(1, (request,), (request,) if source.tokens else (), {request: pack(HERE)})
            )
        if source.tokens and not source.whole:
            first = source.chunks[-1].tokens[1] if source.chunks else source.tokens[0]
            offer = call("offer", request, Chunk((first, min(first + 4, END)), first + 4 >= END, None, HERE))
            return self.dice.choice((offer, call("computed", request, len(source.chunks)), self.step()))
        want = WriteRequest(request, source.tokens or (0, END), {}, pack(HERE), pack(THERE))
        return self.dice.choice(
            (call("inbox.hear", who, want), call("inbox.hear", who, Done(request, source.pin, 1)), self.step())
        )

    def step(self) -> Call:
        some = frozenset(one for one in self.readers if self.dice.random() < 0.2)
        return call("step", some, some, lends=self.dice.random() < 0.8)

    def expire(self) -> Call:
        return call("leases.expire", self.bench.now)

    def name(self) -> str:
        return self.dice.choice(NAMES)

    def edge(self) -> int:
        return self.dice.choice(EDGES)

    def tables(self) -> Any:
        return self.dice.choice((HERE, HERE, THERE, {}, blocks(4, 5, 7), {"kv": Blocks(0, HERE["kv"].ids)}))  # type: ignore[union-attr]

    def table(self) -> dict[str, wire.WireTable]:
        if self.dice.random() < 0.7:
            return pack(self.tables())
        kind, group = self.dice.choice(("blocks", "slot", "ring", "?")), self.dice.choice(("kv", "state", "x"))
        return {group: wire.WireTable(kind, self.edge(), self.dice.randbytes(self.dice.choice((0, 3, 8, 24))))}

    def pin(self) -> int:
        return self.dice.choice([*self.pins, self.edge()])

    def who(self) -> Reader:
        """A reader, that is met more often than not."""
        met = list(self.bench.core.state.sessions)
        return self.dice.choice(met if met and self.dice.random() < 0.95 else self.readers)

    def heard(self) -> Call:
        error = errors.NotBegunError("again") if self.dice.random() < 0.05 else None
        return call("inbox.hear", self.who(), self.message(), error)

    def message(self) -> Any:
        name, names = self.name(), tuple(self.name() for _ in range(self.dice.choice((0, 1, 1, 3))))
        sums: Any = ((("kv", 3, 1),), (1, 0)) if self.dice.random() < 0.4 else ((), None)
        said: list[Any] = [
            *[Claim(self.edge(), names, names[:1], {name: self.table()}, {name: (0, END)})] * 3,
            Claim(self.edge(), (name,), ()),
            *[WriteRequest(name, self.dice.choice(((0, END), (4, END), (self.edge(), self.edge()))), {}, self.table(),
                           self.dice.choice((pack(THERE), self.table())))] * 2,
            Done(name, self.pin(), self.edge(), *sums),
            Leave(name, self.dice.random() < 0.3),
            wire.AskBuffer(name, 0, None, ()),
            wire.ReturnBuffer(name, 0, moved=True),
            wire.Bye(),
        ]  # fmt: skip
        return self.dice.choice(said)

    def command(self) -> Call:
        name, tokens = self.name(), self.dice.choice((None, (0, END), (4, END)))
        ends = sorted((self.dice.choice((0, 4, 8, END)), self.dice.choice((4, 8, END))))
        layers = self.dice.choice((None, None, frozenset({3}), frozenset({9})))
        chunk = Chunk((ends[0], ends[1]), self.dice.random() < 0.3, layers, self.tables())
        return self.dice.choice(
            [call("hold", name, tokens, self.dice.choice((None, self.tables())), ready=self.dice.random() < 0.7)] * 3
            + [call("offer", name, chunk)] * 3
            + [
                call("leases.pass_by", name),
                *[call("close")] * (self.dice.random() < 0.2),
                call("withdraw", name, errors.WithdrawnError("given up")),
                call("drop_engine", "decode", dead=self.dice.random() < 0.5),
                call("leases.collected", NAMES),
                call("leases.collected", NAMES),
            ]
        )

    def fact(self) -> Call:
        who = self.who()
        return self.dice.choice(
            [self.step()] * 4
            + [call("computed", self.name(), self.dice.choice((0, 1, 2, 99)))] * 3
            + [self.met()] * 8
            + [self.expire()] * 3
            + [
                self.expire(),
                call("inbox.stranger", b"x", self.message()),
                call("readers.introduce", who.identity, who.name, self.dice.choice("ab")),
                call("readers.drop", who, "gone"),
                call("readers.drop_malformed", who, "bad"),
                call("state.fail", who, self.name(), errors.BadRequestError("no")),
                call("readers.unsent", who, Offer("r", 1, 0, None, None, {}, last=True), errors.CardError("large")),
                call("readers.unsent", who, wire.Stopped("r", lost=False), errors.PeerLostError("broken")),
            ]
        )

    def met(self) -> Call:
        """A connection of somebody, which is another one than it was before."""
        number = self.dice.randrange(len(self.readers))
        if self.readers[number] not in self.bench.core.state.sessions:
            self.readers[number] = replace(self.readers[number], identity=self.dice.randbytes(4))
            return call("readers.meet", self.readers[number])
        return self.expire()

    def completion(self) -> Call:
        """The completion of a current operation, as a driver reports it."""
        if self.comparing and self.dice.random() < 0.4:
            asked = self.comparing.pop()
            if self.dice.random() < 0.2:
                return call("inbox.hear", asked.reader, Leave(asked.done.request))
            error = errors.ChecksumError("differs") if self.dice.random() < 0.3 else None
            return call("dones.compared", asked.reader, asked.done.request, error)
        if not self.moving:
            return self.expire()
        key = self.dice.choice(list(self.moving))
        if key in self.stopped:
            dead = self.moving[key] != -1 and self.dice.random() < 0.3
            return call("writes.settled", key, lost=self.dice.random() < 0.3, abandoned=dead)
        if self.dice.random() < 0.3:
            return call("writes.broken", key, self.dice.choice((errors.PeerLostError("gone"), ValueError("bad"))))
        return call("writes.moved", key, 64)


@given(st.integers(0, 1 << 64))
@settings(max_examples=100)
def test_nothing_raises_and_every_law_holds(seed: int) -> None:
    Fuzz(seed).run()


def test_the_fuzzer_sees_everything_that_a_core_can_say() -> None:
    counts = sum((Fuzz(seed).run() for seed in range(60)), Counter[str]())
    decodes = {"Foresee", "AskWrite", "Sum", "Ended", "EngineLost"}
    kinds = {one.__name__ for one in Output.__subclasses__()} - decodes
    assert all(counts[kind] for kind in kinds), str(counts)


@given(st.integers(0, 1 << 64))
@settings(max_examples=30)
def test_two_copies_go_the_same_way(seed: int) -> None:
    """A core has nothing but its state: no time, no chance, nothing of another core."""
    fuzz = Fuzz(seed)
    fuzz.run(60)
    given = fuzz.draw()
    one, other = fuzz.bench.core, copy.deepcopy(fuzz.bench.core)
    assert snapshot(one) == snapshot(other)
    for core in (one, other):
        core.at(fuzz.bench.now)
        given.make(core)
    both = [[snapshot(output) for output in core.take()] for core in (one, other)]
    assert both[0] == both[1]
    assert snapshot(one) == snapshot(other)
    hash(snapshot(one))
