"""A prefill worker that its test polls, and decode workers by hand that speak to it."""

from __future__ import annotations

import os
import time
from typing import Any

from msgspec.structs import replace
from tests.runtime.helpers.plans import Shape, plan
from tests.slowness import Patience

from kvplan.runtime import Plain, PrefillWorker
from kvplan.runtime.control.card import PROTOCOL, Hello
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.messages import Claim, Claimed

ONE = plan(Shape(1), Shape(1))


class Caller:
    """A decode worker by hand: it says what a test wants it to say."""

    def __init__(self, worker: PrefillWorker, run: str = "d1") -> None:
        self.worker, self.run = worker, run
        self.line = ControlClient(worker.address, Plain())

    def hello(self, want: str = "worker", **other: Any) -> Any:
        side = ONE.decode.digest
        hello = Hello(want, os.urandom(16), "decode", self.run, 0, "md", "", "", side, "d", ONE.digest, None, PROTOCOL)
        return self.ask(replace(hello, **other))

    def ask(self, message: Any) -> Any:
        """The answer to a message, None without one."""
        self.line.send(message)
        return self.hear()

    def silence(self, message: Any) -> bool:
        """Whether nothing comes back, for a while."""
        self.line.send(message)
        return self.hear(0.2) is None

    def hear(self, seconds: float = 20) -> Any:
        patience = Patience(seconds)
        while patience.lasts():
            self.worker.run_once()
            if found := self.line.receive(1):
                return found[0]
            time.sleep(0.001)
        return None


def hold_of(caller: Caller, request: str) -> int:
    """The number of a request's hold, told to a caller that claims it."""
    (answer,) = caller.ask(Claim(1, (request,))).answers
    assert isinstance(answer, Claimed)
    assert answer.request == request
    return answer.hold
