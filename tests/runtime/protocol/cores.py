"""A decode core alone: what it is told, and what it wants done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import msgspec
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.worlds import request, tables

from kvplan.plan.errors import KvplanError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan
from kvplan.runtime.control import messages as wire
from kvplan.runtime.protocol.decode import DecodeCore
from kvplan.runtime.protocol.effects import Counted, Output, Send
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer
from kvplan.runtime.transfer.demand import PairRules

P = ParamSpec("P")
Done = TypeVar("Done", bound=Output)
MODEL = Model()
BLOCKS = {"kv": 40, "state": 10}
HOLD = 77


def engine(made: Plan, push: bool = False, name: str = "prefill", now: float = 0.0) -> KnownEngine:
    """A prefill engine of a plan, whose workers all hold `BLOCKS`."""
    pair = PairRules.of(made, 0, BLOCKS, BLOCKS)
    read = {one.worker for one in made.reads[0]}
    peers = [
        PrefillPeer(number, f"p{number}", worker.shard, number in read, BLOCKS, lambda runs: 100)
        for number, worker in enumerate(made.prefill.workers)
    ]
    return KnownEngine(name, push, pair, tuple(peers), now, now)


@dataclass
class Rig:
    """Decode worker 0 of a plan with one prefill engine of `workers`, at a time that the test sets."""

    push: bool = False
    workers: int = 1
    linger_s: float = 0.0
    most: int = 8
    now: float = 0.0
    said: list[Output] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = plan(Shape(self.workers), Shape(1), MODEL)
        self.core = DecodeCore(self.plan.decode, BLOCKS, self.most, self.linger_s)
        self.engine = engine(self.plan, self.push)
        self.tell(self.core.meet, self.engine, follow=True)

    def tell(self, act: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> list[Output]:
        """Call the core and return the outputs of the call."""
        act(*arguments, **named)
        out = self.core.take()
        self.said += out
        return out

    def fail(self, load: Load, error: KvplanError) -> list[Output]:
        return self.tell(self.core.loads.fail, load, error)

    def tick(self, seconds: float = 0.0) -> list[Output]:
        """Let `seconds` pass and return the outputs that are due."""
        self.now += seconds
        return [*self.tell(self.core.tick, self.now), *self.tell(self.core.sweep, self.now)]

    def hear(self, message: Any, worker: int = 0, *, broken: bool = False) -> str:
        """A prefill worker says this; what it is counted as."""
        out = self.tell(self.core.hear, self.engine, self.engine.peers[worker], message, self.now, broken=broken)
        (counted,) = [one for one in out if isinstance(one, Counted)]
        (kind,) = counted.kinds
        return kind

    def begin(self, asked: Request, seconds: float = 20.0, **facts: Any) -> Load:
        load = Load(asked, self.now + seconds, self.now, **facts)
        self.tell(self.core.begin, load, self.engine, self.now)
        return load

    def claimed(self, part: LoadPart, hold: int = HOLD) -> str:
        """A prefill worker keeps the request of a part."""
        return self.hear(wire.ClaimAnswers(part.heartbeat, 6.0, (wire.Claimed(part.request, hold),)), part.worker)

    def of(self, kind: type[Done]) -> list[Done]:
        """Take and return all outputs of one kind, each once."""
        found = [one for one in self.said if isinstance(one, kind)]
        self.said = [one for one in self.said if not isinstance(one, kind)]
        return found

    def told(self, worker: int | None = None) -> list[msgspec.Struct]:
        """Take and return the messages to one prefill worker, or to any, each once."""
        return [one.message for one in self.of(Send) if worker in (None, one.peer.worker)]


def ask(name: str = "r", block: int = 3, tokens: tuple[int, int] = (0, 12)) -> Request:
    """A request of three blocks from `block` on, on both sides."""
    ids = [block, block + 1, block + 2]
    sides = [tables(Shape(1), MODEL, ids, 0, block // 4, tokens[1]) for _ in range(2)]
    return request(name, tokens, *sides)


def fed(asked: Request) -> Request:
    """A request whose prefill blocks only offers tell."""
    return replace(asked, prefill={})
