"""The protocol in one thread, step by step: real workers, a clock that the model moves, names that are held again.

Each hold has bytes of its own. The law: a request that is done has exactly the bytes of the hold that decode was told
of. Blocks are overwritten as soon as they are released, and a name never has the same ones twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.worlds import DECODE, PREFILL, Truth, expect, fill, memory, truth
from tests.runtime.simulation.channels import Net, speak
from tests.runtime.simulation.invariants import empty, rested

from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import KvplanError
from kvplan.plan.types import Blocks
from kvplan.runtime import DecodeWorker, InMemory, Plain, PrefillWorker, Request, Slot, Transfer, views
from kvplan.runtime.transport.inmemory import Hub

MODEL, DECODE_SHAPE = Model(), Shape(1)
END, LEASE, POOL = 12, 6.0, 40
Groups = tuple[str, ...] | None
BOTH = ("kv", "state")
CHUNKS = (((0, 4), None), ((4, END), (3,)), ((4, END), (7,)))
# Bytes of a message here, and ids of a table that makes a message larger.
LARGEST, LONG = 6000, 900


class BrokenLawError(AssertionError):
    """A request is done, and its bytes are not those of the hold that decode was told of."""


@dataclass(eq=False)
class Hold:
    """One hold of a name. `holding` are the prefill workers that keep it, `fed` how many chunks each was offered.

    `groups` are those that prefill names the blocks of, None where it gives no tables at all.
    """

    name: str
    content: Truth
    tables: Tables
    groups: Groups
    streamed: bool
    holding: set[int] = field(default_factory=set)
    fed: dict[int, int] = field(default_factory=dict)

    @property
    def named(self) -> Tables | None:
        return None if self.groups is None else {group: self.tables[group] for group in self.groups}


@dataclass(eq=False)
class Ask:
    """A request of decode, and the holds whose bytes it may have: the one that it was told of."""

    transfer: Transfer
    request: Request
    told: Hold | None


class Protocol:
    """A prefill engine, a decode worker, and what the callers of both know. Every method is a step of the model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: str, workers: int, seed: int = 0) -> None:
        self.draw, self.mode, self.shape = random.Random(seed), mode, Shape(workers)
        self.net, self.hub, self.steps = Net(random.Random(seed), slow=0), Hub(), list[str]()
        speak(self.net, monkeypatch)
        monkeypatch.setattr("kvplan.runtime.control.card.LARGEST", LARGEST)
        self.plan = plan(self.shape, DECODE_SHAPE, MODEL)
        self.arrays = [memory(self.shape, MODEL, number) for number in range(workers)]
        self.prefill = [self._prefill(number) for number in range(workers)]
        for worker in self.prefill:
            worker.announce([one.address for one in self.prefill])
        self.net.turn = lambda: [worker.run_once() for worker in self.prefill]
        self.memory = memory(DECODE_SHAPE, MODEL, 0)
        self.decode = self._decode()
        self.free, self.holds, self.asks = set(range(POOL)), list[Hold](), list[Ask]()
        self.connect()

    def connect(self) -> None:
        if not self.decode.peers():
            self.decode.connect(self.prefill[0].address, 1.0, mode=self.mode)

    def hold(self, name: str, groups: Groups = BOTH, long: bool = False) -> Hold | None:
        """Hold a name whole, and say what its blocks are in none or all groups."""
        hold = self._new(name, groups, long, streamed=False)
        return hold and self._begin(hold, lambda worker: worker.hold(name, hold.named))

    def hold_late(self, name: str, groups: Groups = BOTH) -> Hold | None:
        """Hold a name whole that decode has asked for, which prefill has heard."""
        hold = self._new(name, groups, long=False, streamed=False)
        if hold is not None and self.ask(hold) is not None:
            self.rounds(2)
        return hold and self._begin(hold, lambda worker: worker.hold(name, hold.named))

    def open(self, name: str, groups: Groups = BOTH, long: bool = False) -> Hold | None:
        hold = self._new(name, groups, long, streamed=True)
        return hold and self._begin(hold, lambda worker: worker.open(name, (0, END)))

    def offer(self, hold: Hold, number: int) -> None:
        """The next chunk on one prefill worker."""
        if number in hold.holding and hold.fed[number] < len(CHUNKS):
            tokens, layers = CHUNKS[hold.fed[number]]
            last = hold.fed[number] == len(CHUNKS) - 1
            named = hold.named if tokens[1] == END else {g: t for g, t in (hold.named or {}).items() if g == "kv"}
            with suppress(KvplanError):
                self.prefill[number].offer(hold.name, tokens, named, layers=layers, last=last)
                hold.fed[number] += 1

    def offer_all(self, hold: Hold) -> None:
        for _ in CHUNKS:
            for number in range(len(self.prefill)):
                self.offer(hold, number)

    def ask(self, hold: Hold, streamed: bool = False, told: bool = True) -> Ask | None:
        """Decode asks for a hold that it was told of, maybe long ago; without `told` it knows the name only."""
        request = Request(hold.name, (0, END), hold.tables if told else {}, self._unused())
        if self.decode.quarantined() or any(not ask.transfer.ended for ask in self.asks if ask.request.id == hold.name):
            return None
        for plane, array in self.memory.items():
            array[places(request, plane)] = 0
        call = self.decode.open if streamed else self.decode.submit
        transfer = call(request, self.draw.choice((3.0, 30.0)))
        self.asks.append(Ask(transfer, request, hold if told else None))
        return self.asks[-1]

    def release(self) -> None:
        """The prefill engine takes what is released, and gives the blocks to others at once."""
        for number, worker in enumerate(self.prefill):
            for released in worker.released():
                hold = next(one for one in self.holds if one.name == released.request and number in one.holding)
                hold.holding.discard(number)
                self._write(number, truth(MODEL, END, self.draw.randrange(1 << 30)), hold.tables)
                if not hold.holding:
                    self.free |= blocks(hold.tables)

    def withdraw(self, name: str) -> None:
        for worker in self.prefill:
            with suppress(KvplanError):
                worker.withdraw(name)

    def tick(self, seconds: float) -> None:
        self.net.time += seconds

    def poll_prefill(self, number: int) -> None:
        self.prefill[number].run_once()

    def poll_decode(self) -> None:
        self.decode.run_once()
        self.look()

    def rounds(self, count: int = 12, seconds: float = 0.1) -> None:
        for _ in range(count):
            self.tick(seconds)
            self.net.turn()
            self.poll_decode()

    def lapse(self) -> None:
        """Nobody claims anything for a lease, and what is over is taken."""
        self.tick(LEASE + 1)
        self.net.turn()
        self.release()

    def look(self) -> None:
        """The law, and that no transfer has fewer parts than the plan has workers to ask."""
        contract = len(self.prefill)
        for request in self.decode.inspect().requests:
            assert len(request.parts) == contract, f"{len(request.parts)} of {contract} parts"
        for ask in [ask for ask in self.asks if ask.transfer.state == "done"]:
            self.asks.remove(ask)
            if not self._right(ask):
                raise BrokenLawError(f"request {ask.request.id} is done with other bytes: {self.steps}")

    def rest(self) -> None:
        """Everything ends, and nothing is left."""
        self.net.full = 0.0
        for _ in range(4):
            self.rounds(10, 1.0)
            self.release()
            self.connect()
        assert all(ask.transfer.ended for ask in self.asks)
        rested(self.decode)
        for worker in self.prefill:
            empty(worker)

    def close(self) -> None:
        self.decode.close()
        for worker in self.prefill:
            worker.close()

    def _prefill(self, number: int) -> PrefillWorker:
        pool, transport = views(self.plan.prefill, number, self.arrays[number]), InMemory(self.hub, f"p{number}")
        given: dict[str, Any] = {"start": False, "lease": LEASE, "clock": self.net.now}
        return PrefillWorker(self.plan, number, pool, transport, identity=PREFILL, keys=Plain(), **given)

    def _decode(self) -> DecodeWorker:
        pool, transport = views(self.plan.decode, 0, self.memory), InMemory(self.hub, "d")
        return DecodeWorker(self.plan, 0, pool, transport, identity=DECODE, keys=Plain(), clock=self.net.now)

    def _new(self, name: str, groups: Groups, long: bool, streamed: bool) -> Hold | None:
        """A hold of a name that nobody holds, in other blocks, or at least another slot, than this name had before."""
        mine = [hold for hold in self.holds if hold.name == name]
        had = {block for hold in mine for block in blocks(hold.tables)}
        if any(hold.holding for hold in mine) or len(self.free - had) < 3:
            return None
        ids = self.draw.sample(sorted(self.free - had), 3)
        state, tail = ids[0], [ids[0]] * LONG if long else []
        if mine and set(kv(mine[-1].tables)) <= self.free and self.draw.random() < 0.3:
            ids, tail = kv(mine[-1].tables), []
        tables: Tables = {"kv": Blocks(0, np.array(ids + tail, np.int64)), "state": Slot(state, END)}
        return Hold(name, truth(MODEL, END, self.draw.randrange(1 << 30)), tables, groups, streamed)

    def _begin(self, hold: Hold, call: Callable[[PrefillWorker], None]) -> Hold | None:
        for number, worker in enumerate(self.prefill):
            try:
                call(worker)
            except KvplanError:
                # All workers give the same answer.
                assert not hold.holding
                return None
            hold.holding.add(number)
            hold.fed[number] = 0
            self._write(number, hold.content, hold.tables)
        self.free -= blocks(hold.tables)
        self.holds.append(hold)
        return hold

    def _write(self, number: int, content: Truth, tables: Tables) -> None:
        fill(self.shape, MODEL, number, self.arrays[number], content, tables)

    def _unused(self) -> Tables:
        """Decode blocks that no request in progress writes."""
        busy = {block for ask in self.asks if not ask.transfer.ended for block in kv(ask.request.decode)}
        ids = self.draw.sample(sorted(set(range(POOL)) - busy), 3)
        return {"kv": Blocks(0, np.array(ids, np.int64)), "state": Slot(ids[0], END)}

    def _right(self, ask: Ask) -> bool:
        if ask.told is not None:
            return self._has(ask, ask.told)
        # A worker that knows only the name may get any hold of that name.
        return any(self._has(ask, hold) for hold in self.holds if hold.name == ask.request.id)

    def _has(self, ask: Ask, hold: Hold) -> bool:
        want = expect(DECODE_SHAPE, MODEL, 0, hold.content, ask.request.decode, ask.request.tokens)
        spots = {plane: places(ask.request, plane) for plane in want}
        return all(
            np.array_equal(array[spots[plane]], want[plane][spots[plane]]) for plane, array in self.memory.items()
        )


def kv(tables: Tables) -> list[int]:
    table = tables["kv"]
    assert isinstance(table, Blocks)
    return table.ids.tolist()


def slot(tables: Tables) -> int:
    table = tables["state"]
    assert isinstance(table, Slot)
    return table.slot


def blocks(tables: Tables) -> set[int]:
    """The numbers that nobody else has meanwhile."""
    return {*kv(tables), slot(tables)}


def places(request: Request, plane: str) -> list[int]:
    """The decode blocks or the slot of a request in one plane."""
    return kv(request.decode) if plane.startswith("kv") else [slot(request.decode)]
