"""A prefill worker of the rig: it computes content when told, and scribbles over blocks once they are released."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.cluster import content
from tests.cluster.actor import Actor, Word
from tests.cluster.setting import Setting, keys
from tests.cluster.watched import Watched

from kvplan.plan.types import Blocks
from kvplan.runtime import PrefillWorker
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.transfer.limits import Limits


class Late:
    """An event like a device's: what is computed before it is there when `query` first says so, and not before."""

    def __init__(self, polls: int, compute: Callable[[], None]) -> None:
        self.left, self.compute = polls, compute

    def query(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.compute()
        return self.left <= 0


class Prefill(Actor):
    def __init__(self, setting: Setting, say: Callable[[Word], None], transport: Watched) -> None:
        super().__init__(setting, say, transport)
        self.requests: dict[str, Word] = {}
        self.deaf = False
        self.worker = PrefillWorker(
            self.plan,
            setting.number,
            self.pool(setting.logical),
            transport,
            identity=Identity(setting.name, setting.run),
            keys=keys(setting),
            bind=setting.bind,
            lease=setting.lease,
            limits=Limits(**setting.limits),
            start=setting.start,
            clock=self.clock,
        )
        self.say(event="up", address=self.worker.address)

    def poll(self) -> None:
        if self.deaf:
            # The bytes of a first transfer come only if both sides let NIXL move: deaf to messages is not dead to it.
            self.transport.progress()
        elif not self.setting.start:
            self.worker.run_once()
        for released in self.worker.released():
            self._free(released.request, released.why)

    def held(self) -> Word:
        return {"requests": sorted(self.requests)}

    def do_announce(self, addresses: list[str]) -> None:
        self.worker.announce(addresses)

    def do_deaf(self, deaf: bool) -> None:
        """Stop polling the worker, which answers nobody then, though bytes move; only where it has no thread."""
        assert not self.setting.start
        self.deaf = deaf

    def do_hold(self, request: str, table: Word, late: int = 0) -> None:
        """Compute all of a request and hold it; with `late`, it is computed after so many looks at its event."""
        self.requests[request] = table
        after = self._computed(request, (0, table["at"]), late)
        self._or_forget(request, lambda: self.worker.hold(request, self.tables(table), after=after))

    def do_holds(self, held: list[Word]) -> None:
        """Hold many at once."""
        for word in held:
            self.do_hold(**word)

    def do_open(self, request: str, table: Word, tokens: tuple[int, int]) -> None:
        self.requests[request] = table
        self._or_forget(request, lambda: self.worker.open(request, tokens=(tokens[0], tokens[1])))

    def do_offer(
        self,
        request: str,
        tokens: tuple[int, int],
        last: bool,
        late: int = 0,
        layers: list[int] | None = None,
        slots: bool = True,
    ) -> None:
        """Tokens of all layers, or of some, as they are computed. Without `slots` it is not said where states are."""
        if request not in self.requests:
            return
        between = tokens[0], tokens[1]
        after = self._computed(request, between, late, layers)
        part = self._part(request, tokens)
        tables = self.tables(part if slots else {**part, "slot": None})
        self.worker.offer(request, tokens=between, tables=tables, layers=layers, after=after, last=last)

    def do_withdraw(self, request: str) -> None:
        self.worker.withdraw(request)

    def do_suspend(self) -> None:
        self.worker.suspend()

    def do_resume(self, logical: int) -> None:
        self.worker.resume(self.pool(logical))

    def _or_forget(self, request: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception:
            del self.requests[request]
            raise

    def _computed(
        self, request: str, tokens: tuple[int, int], late: int, layers: list[int] | None = None
    ) -> Late | None:
        if late:
            return Late(late, lambda: self._compute(request, tokens, layers))
        self._compute(request, tokens, layers)
        return None

    def _compute(self, request: str, tokens: tuple[int, int], layers: list[int] | None) -> None:
        """A layer's state is there with the last of its tokens."""
        wire, number = self.requests.get(request), self.setting.number
        if wire is None:
            return
        what = content.content(self.model, wire["content"], wire["at"])
        table = Blocks(wire["first"], np.array(wire["ids"], np.int64))
        content.write(self.shape, self.model, number, self.arrays, what, table, np.arange(*tokens), layers)
        if tokens[1] == wire["at"]:
            content.write_states(self.shape, self.model, number, self.arrays, what, wire["slot"], layers)

    def _part(self, request: str, tokens: tuple[int, int]) -> Word:
        """The blocks of some tokens of a request, and its slot with the last of them."""
        wire, per = self.requests[request], self.shape.kernel * self.shape.ratio
        first, end = tokens[0] // per, -(-tokens[1] // per)
        slot = wire["slot"] if tokens[1] == wire["at"] else None
        return {"first": first, "ids": wire["ids"][first:end], "slot": slot, "at": wire["at"]}

    def _free(self, request: str, why: str) -> None:
        wire = self.requests.pop(request, None)
        if wire is not None:
            content.repaint(self.shape, self.arrays, "kv", wire["ids"])
            content.repaint(self.shape, self.arrays, "state", [wire["slot"]])
        self.say(event="released", request=request, why=why, known=wire is not None)
