"""Peers that were let in and say what they like: what others have said, in any order, with numbers of anybody's."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.runtime.helpers.worlds import memory
from tests.runtime.simulation import engines, schedules
from tests.runtime.simulation.channels import Desk, Line, Net, Transport
from tests.runtime.simulation.invariants import lent, look
from tests.runtime.simulation.schedules import Schedule

from kvplan.runtime import Plain, views
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import PROTOCOL, EngineCard, Hello, Refusal, WorkerCard, describe, encode, together
from kvplan.runtime.control.outbox import LineState

KEPT = 400
# Cards, and what ends a connection, are said where they belong.
NOT_SAID = (EngineCard, WorkerCard, Refusal, Hello)
# Neither a hold, nor a number, nor an attempt that there is.
OTHER = 1 << 40
FAR = (0, 1, 2, 7, 1 << 20, wire.FARTHEST)


class Tapped:
    """The last messages of each kind to prefill workers and to decode workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up, self.down = dict[type, deque[Any]](), dict[type, deque[Any]]()
        self.holds, self.monkeypatch = deque[int](maxlen=KEPT), monkeypatch
        for kind, heard in ((Line, self.up), (Desk, self.down)):
            monkeypatch.setattr(kind, "send", self._tapping(kind.send, heard))

    def _tapping(self, send: Callable[..., bool], heard: dict[type, deque[Any]]) -> Callable[..., bool]:
        def tapped(end: Any, *arguments: Any) -> bool:
            message = arguments[-1]
            if not isinstance(message, NOT_SAID):
                heard.setdefault(type(message), deque(maxlen=KEPT)).append(message)
            if isinstance(message, wire.ClaimAnswers):
                self.holds.extend(one.hold for one in message.answers if isinstance(one, wire.Claimed))
            return send(end, *arguments)

        return tapped


class Stranger:
    """A decode worker of its own engine, with some connections to one prefill worker."""

    def __init__(self, made: HostileDecode, number: int) -> None:
        self.made, self.run, self.number = made, f"evil-{number}", made.evil.randrange(made.shapes[1].workers)
        # Another run of one engine takes the place of the one before.
        self.name = f"evil-{made.evil.randrange(4)}"
        self.prefill = made.evil.choice(made.prefill)
        arrays = memory(made.shapes[1], made.model, self.number)
        self.transport = Transport(made.net, made.hub, self.run)
        self.pool = views(made.plan.decode, self.number, arrays)
        for mem_type, regions in self.pool.geometry.by_type():
            self.transport.register(regions, mem_type)
        self.push = made.evil.random() < 0.5
        self.lines = [Line(made.net, self.prefill.address, Plain()) for _ in range(made.evil.choice((1, 2)))]
        for line in self.lines:
            self.hello(line)

    def hello(self, line: Line) -> None:
        plan, geometry = self.made.plan, self.pool.geometry
        metadata, nonce = self.transport.metadata(), self.made.evil.randbytes(16)
        card = describe(self.number, plan, self.run, 0, geometry, metadata, nonce) if self.push else None
        side = plan.decode.digest, plan.decode.key, plan.digest
        line.send(
            Hello("worker", nonce, self.name, self.run, self.number, plan.model_digest, "", "", *side, card, PROTOCOL)
        )

    def act(self) -> None:
        evil, line = self.made.evil, self.made.evil.choice(self.lines)
        what = evil.random()
        if what < 0.02:
            self.hello(line)
        elif what < 0.04:
            line.down.give = evil.choice((lambda data: LineState.FULL, type(line.down).give.__get__(line.down)))  # type: ignore[method-assign]
        elif what < 0.05:
            line.cut()
        elif what < 0.06:
            line.send(wire.Bye())
        elif heard := [kind for said, kind in self.made.tapped.up.items() if said is not wire.Bye]:
            line.send(self.made.altered(evil.choice(evil.choice(heard))))
        if evil.random() < 0.5 and any(isinstance(message, Refusal) for message in line.receive()):
            self.hello(line)
        line.flush()

    def end(self) -> None:
        for line in self.lines:
            line.cut()
        self.transport.close()


class Hostile(Schedule):
    """A schedule among which somebody means harm, by a chance of its own."""

    def __init__(self, seed: int, net: Net, tapped: Tapped) -> None:
        self.tapped, self.evil = tapped, random.Random(f"evil {seed}")
        super().__init__(seed, net)

    def altered(self, message: Any) -> Any:
        """A message with some of its numbers and names from others."""
        evil, change = self.evil, dict[str, Any]()
        if hasattr(message, "request") and evil.random() < 0.6:
            change["request"] = self.name()
        for name in ("hold", "number", "attempt", "heartbeat", "address", "size"):
            if isinstance(getattr(message, name, None), int) and evil.random() < 0.4:
                change[name] = self.numbers(name, getattr(message, name))
        if isinstance(message, wire.Claim) and evil.random() < 0.7:
            names = tuple(self.name() for _ in range(evil.randint(1, 4)))
            change |= {"requests": names, "streamed": tuple(name for name in names if evil.random() < 0.5)}
            change["tables"] = {name: self.tables() for name in names if evil.random() < 0.3}
        for name in ("prefill", "decode", "tables"):
            if not isinstance(message, wire.Claim) and hasattr(message, name) and evil.random() < 0.3:
                change[name] = self.tables()
        if isinstance(message, wire.WriteRequest) and evil.random() < 0.3:
            change["tokens"] = evil.choice(FAR), evil.choice(FAR)
        return msgspec.structs.replace(message, **change)

    def tables(self) -> wire.WireTables:
        """A table of any kind, with any numbers, of a group that may not exist."""
        evil, first = self.evil, self.evil.choice((*FAR, 2**63 - 1, -(2**63)))
        kind, group = evil.choice(("blocks", "slot", "ring", "?")), evil.choice(("kv", "state", "x"))
        return {group: wire.WireTable(kind, first, evil.randbytes(evil.choice((0, 3, 8, 24))))}

    def name(self) -> str:
        return self.evil.choice([*self.works, *self.works, *(f"r{n}" for n in range(3)), "never"])

    def numbers(self, name: str, before: int) -> int:
        if name == "hold" and self.tapped.holds:
            return self.evil.choice(self.tapped.holds)
        return max(0, self.evil.choice((before - 1, before + 1, before + 2, *FAR)))


class HostileDecode(Hostile):
    """Decode workers mean harm: whatever they say, others get the right bytes or an error in time."""

    def __init__(self, seed: int, net: Net, tapped: Tapped) -> None:
        self.strangers, self.met = list[Stranger](), 0
        super().__init__(seed, net, tapped)

    def act(self) -> None:
        super().act()
        if len(self.strangers) < 3 and self.evil.random() < 0.1:
            self.met += 1
            self.strangers.append(Stranger(self, self.met))
        for stranger in self.strangers:
            for _ in range(self.evil.choice((0, 1, 1, 4))):
                stranger.act()
        if self.strangers and self.evil.random() < 0.01:
            self.strangers.pop(0).end()

    def end(self) -> None:
        for stranger in self.strangers:
            stranger.end()
        super().end()


class HostilePrefill(Hostile):
    """Prefill workers add words of no claim, hold, number or attempt of now to what they say: they are as nothing."""

    def act(self) -> None:
        super().act()
        lines = [line for line in self.net.lines if not line.gone]
        for _ in range(self.evil.choice((0, 1, 2, 8)) if lines else 0):
            line, heard = self.evil.choice(lines), list(self.tapped.down.values())
            if heard:
                message = self.said(self.evil.choice(self.evil.choice(heard)))
                line.down.put(together([encode(message)]), False)

    def said(self, message: Any) -> Any:
        never = OTHER + self.evil.randrange(9)
        change: dict[type, dict[str, Any]] = {
            wire.ClaimAnswers: {"heartbeat": 0},
            wire.Failed: {"attempt": never, "request": self.name()},
            wire.Confirmed: {"attempt": never, "request": self.name()},
            wire.Offer: {"hold": never, "request": self.name()},
            wire.Written: {"hold": never, "request": self.name()},
        }
        numbered = {"number": never} if hasattr(message, "number") else {"request": "never"}
        return msgspec.structs.replace(message, **change.get(type(message), numbered))


class LyingPrefill(HostilePrefill):
    """Prefill workers that send anything. They could always write wrong bytes, so only reads are checked.

    Whatever they say, decode reads into no block and no buffer that is free, and ends in time.
    """

    def __init__(self, seed: int, net: Net, tapped: Tapped) -> None:
        patch = tapped.monkeypatch.setattr
        for where, name in ((schedules, "right"), (engines, "right")):
            patch(where, name, lambda *_: None)
        for check in (look, lent):
            patch(schedules, check.__name__, partial(of_reads, check))
        super().__init__(seed, net, tapped)

    def said(self, message: Any) -> Any:
        return self.altered(message)


def of_reads(check: Callable[[Any], None], made: Schedule) -> None:
    """Look at what decode workers read alone."""
    decode = {worker.inspect().transport for engine in made.engines for worker in engine.workers}
    every = made.net.transfers
    made.net.transfers = [late for late in every if late.agent.name in decode]
    try:
        check(made)
    finally:
        made.net.transfers = every
