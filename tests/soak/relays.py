"""Two engines that each offer on what they receive, as soon as it is there, while callbacks of transfers raise.

    source -> left -> right
    source -> right -> left

Each has its own threads; what one of them holds is after a transfer that the same process polls: a lock that is held
while somebody else's code runs stops all of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from tests.cluster.cluster import Tally
from tests.runtime.helpers.plans import Bytes, Model, Shape, plan
from tests.runtime.helpers.worlds import Truth, expect, fill, memory, tables, truth

from kvplan.plan.request import Tables
from kvplan.runtime import DecodeWorker, Identity, InMemory, Plain, PrefillWorker, Request, Transfer, views
from kvplan.runtime.transport.inmemory import Hub

SHAPE, MODEL, END = Shape(1), Model(), 4
PLAN = plan(SHAPE, SHAPE, MODEL)
# Requests at once each way, seconds that they have, the share that has a callback which raises.
WAVE, TIMEOUT, RAISING, ALLOWANCE, PAUSE = 16, 30.0, 0.5, 5.0, 0.001
RAISED = (SystemExit, asyncio.CancelledError, ValueError)


@dataclass(slots=True)
class Relay:
    """An engine of one prefill and one decode worker over the same memory: what arrives can be offered on."""

    name: str
    hub: Hub
    arrays: dict[str, Bytes] = field(init=False)
    prefill: PrefillWorker = field(init=False)
    decode: DecodeWorker = field(init=False)

    def __post_init__(self) -> None:
        self.arrays, keys = memory(SHAPE, MODEL, 0), Plain()
        prefill, decode = (views(side, 0, self.arrays) for side in (PLAN.prefill, PLAN.decode))
        out, into = (InMemory(self.hub, f"{self.name} {way}") for way in ("out", "in"))
        self.prefill = PrefillWorker(PLAN, 0, prefill, out, identity=Identity(self.name, self.name), keys=keys)
        self.prefill.announce([self.prefill.address])
        self.decode = DecodeWorker(PLAN, 0, decode, into, identity=Identity(f"{self.name} in", "d"), keys=keys)
        self.decode.start()

    def close(self) -> None:
        self.decode.close()
        self.prefill.close()


@dataclass(frozen=True, slots=True)
class Leg:
    """A request of one way: the relay that it goes through, the engine where it ends, its blocks in all of them."""

    name: str
    relay: Relay
    last: Relay
    content: Truth
    at: Tables

    def begin(self, source: Relay, random: Random, struck: Counter[str]) -> list[Transfer]:
        """Ask for it in the relay, and by way of that in the last engine, before a byte of it has moved."""
        struck["relay"] += 1
        source.prefill.hold(self.name, self.at)
        first = self.relay.decode.submit(Request(self.name, (0, END), self.at, self.at), TIMEOUT, peer=source.name)
        if random.random() < RAISING:
            struck["callback that raises"] += 1
            with suppress(*RAISED):
                first.on_end(raising(random.choice(RAISED)))
        on = Request(f"{self.name} on", (0, END), self.at, self.at)
        self.relay.prefill.hold(on.id, self.at, after=first)
        return [first, self.last.decode.submit(on, TIMEOUT, peer=self.relay.name)]

    def wrong(self) -> str:
        """Which of the two engines that it came to has other bytes."""
        want = expect(SHAPE, MODEL, 0, self.content, self.at, (0, END))
        for engine in (self.relay, self.last):
            if any((engine.arrays[plane][rows != 0] != rows[rows != 0]).any() for plane, rows in want.items()):
                return f"{self.name} in {engine.name}"
        return ""


def relayed(random: Random, mode: str, waves: int, struck: Counter[str]) -> Tally:
    """So many waves of requests that are relayed both ways at once; `struck` counts what was done to them."""
    tally = Tally()
    with _engines(mode) as (source, left, right):
        ways = [(left, right), (right, left)] * WAVE
        for wave in range(waves):
            legs = [_leg(f"{wave} {number}", number, way, source) for number, way in enumerate(ways)]
            begun = [leg.begin(source, random, struck) for leg in legs]
            transfers = [transfer for both in begun for transfer in both]
            tally.begun[f"{mode}, relayed"] += len(transfers)
            _count(tally, transfers)
            done = [leg for leg, both in zip(legs, begun, strict=True) if all(one.state == "done" for one in both)]
            tally.wrong += [text for leg in done if (text := leg.wrong())]
            _released(source, left, right)
    return tally


def raising(kind: type[BaseException]) -> Callable[[Transfer], None]:
    def callback(_: Transfer) -> None:
        raise kind

    return callback


@contextmanager
def _engines(mode: str) -> Iterator[list[Relay]]:
    """The source and the two relays, all connected as the drawing has it; what callbacks raise is not logged."""
    hub, disabled = Hub(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        stack.callback(logging.disable, disabled)
        source, left, right = (stack.enter_context(closing(Relay(name, hub))) for name in ("source", "left", "right"))
        for one, other in ((left, right), (right, left)):
            for peer in (source, other):
                one.decode.connect(peer.prefill.address, TIMEOUT, mode=mode)
        yield [source, left, right]


def _leg(name: str, number: int, way: tuple[Relay, Relay], source: Relay) -> Leg:
    """A request in a block of its own, the same one everywhere; its bytes are in the source."""
    content, where = truth(MODEL, END, crc32(name.encode())), tables(SHAPE, MODEL, [number], 0, number, END)
    fill(SHAPE, MODEL, 0, source.arrays, content, where)
    for engine in way:
        for plane in engine.arrays.values():
            plane[number] = 0
    return Leg(name, *way, content, where)


def _count(tally: Tally, transfers: list[Transfer]) -> None:
    """Wait for the end of all, and count it."""
    until = time.monotonic() + TIMEOUT + ALLOWANCE
    while not all(transfer.ended for transfer in transfers) and time.monotonic() < until:
        time.sleep(PAUSE)
    for transfer in transfers:
        tally.good += 1
        tally.ended[transfer.state] += transfer.ended
        if transfer.state != "done":
            tally.harmed.append(f"{transfer.request.id} is {transfer.state}: {transfer.error}")


def _released(*engines: Relay) -> None:
    """Every hold has ended, and its blocks are free."""
    until = time.monotonic() + TIMEOUT
    while any(engine.prefill.counters.snapshot()["holds"] for engine in engines):
        assert time.monotonic() < until, "a hold of what has arrived is not over"
        time.sleep(PAUSE)
        for engine in engines:
            engine.prefill.released()
    for engine in engines:
        assert engine.decode.quarantined() == {}
