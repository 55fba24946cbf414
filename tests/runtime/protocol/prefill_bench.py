"""A prefill core by itself, with readers that are values: what happens is told, what is to be done comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import msgspec
import numpy as np
from tests.runtime.helpers.plans import Shape, plan
from tests.runtime.helpers.worlds import LOGICAL

from kvplan.plan.block_tables import Tables
from kvplan.plan.types import Blocks
from kvplan.runtime import Slot
from kvplan.runtime.control.messages import Claim, ClaimAnswer, ClaimAnswers, WriteRequest, pack
from kvplan.runtime.errors import WithdrawnError
from kvplan.runtime.prefill.peers import expected
from kvplan.runtime.protocol.effects import Output, Send
from kvplan.runtime.protocol.holds import Claimant
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.transfer.chunks import Chunk
from kvplan.runtime.transfer.demand import PairRules

P = ParamSpec("P")
Kind = TypeVar("Kind", bound=Output)
LEASE, END = 10.0, 12
PLAN = plan(Shape(1), Shape(2))
BLOCKS = {"kv": LOGICAL, "state": LOGICAL}


def blocks(*ids: int) -> Tables:
    """Blocks of 12 tokens, and the slot after them."""
    return {"kv": Blocks(0, np.array(ids, np.int64)), "state": Slot(3, END)}


HERE, THERE = blocks(4, 5, 6), blocks(7, 8, 9)


def reader(worker: int = 0, run: str = "run", push: bool = False, name: str = "decode", connection: int = 0) -> Reader:
    """A connection of decode worker `worker`, one of two that read from the one prefill worker."""
    target = None
    if push:
        target = PairRules.of(PLAN, worker, BLOCKS, BLOCKS)
    identity = f"{name} {run} {worker} {push} {connection}".encode()
    claimant = Claimant(run, PLAN.digest, worker, connection)
    return Reader(identity, name, claimant, PLAN, expected(PLAN, 0), target)


class Bench:
    """A core and a clock. `tell` returns what one call leads to; `said` are the messages among all of that so far."""

    def __init__(self, most: int = 64, **given: Any) -> None:
        self.core, self.now = PrefillCore(0, LEASE, most, **given), 0.0
        self.outputs = list[Output]()

    def tell(self, act: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> list[Output]:
        self.core.at(self.now)
        act(*arguments, **named)
        outputs = self.core.take()
        self.outputs += outputs
        return outputs

    def meet(self, *readers: Reader) -> None:
        for one in readers:
            self.tell(self.core.readers.meet, one)

    def hear(self, who: Reader, message: msgspec.Struct) -> list[Any]:
        """The immediate answers to the sender of a message."""
        outputs = self.tell(self.core.inbox.hear, who, message)
        return [one.message for one in outputs if isinstance(one, Send) and one.peer is who]

    def claim(
        self, who: Reader, request: str = "r", *, streamed: bool = False, told: Tables | None = None
    ) -> ClaimAnswer:
        """The answer to a claim of one request."""
        named = {} if told is None else {request: pack(told)}
        (answers,) = self.hear(who, Claim(1, (request,), (request,) if streamed else (), named))
        assert isinstance(answers, ClaimAnswers)
        (answer,) = answers.answers
        return answer

    def hold(self, request: str = "r", tables: Tables | None = None, *, ready: bool = True) -> int:
        """Hold a request whole. Returns the number of its hold."""
        self.tell(self.core.hold, request, None, tables, ready=ready)
        return self.core.state.sources[request].hold

    def open(self, request: str = "r", tokens: tuple[int, int] = (0, END)) -> int:
        self.tell(self.core.hold, request, tokens, None, ready=True)
        return self.core.state.sources[request].hold

    def offer(self, tokens: tuple[int, int], tables: Tables = HERE, *, last: bool = False) -> list[Output]:
        return self.tell(self.core.offer, "r", Chunk(tokens, last, None, tables))

    def withdraw(self, request: str = "r") -> list[Output]:
        return self.tell(self.core.withdraw, request, WithdrawnError("given up"))

    def step(self, *behind: Reader, lends: bool = True) -> list[Output]:
        return self.tell(self.core.step, frozenset(behind), frozenset(), lends=lends)

    def want(self, who: Reader, *, tokens: tuple[int, int] = (0, END), told: Tables = HERE) -> list[Output]:
        """A reader wants request r written."""
        return self.tell(self.core.inbox.hear, who, WriteRequest("r", tokens, {}, pack(told), pack(THERE)))

    def take(self, kind: type[Kind]) -> list[Kind]:
        """The outputs of a kind since the last call of any."""
        found, self.outputs = [one for one in self.outputs if isinstance(one, kind)], []
        return found

    def said(self, who: Reader) -> list[Any]:
        """The messages to a reader since the last call, or of `take`."""
        return [one.message for one in self.take(Send) if one.peer is who]
