"""KV blocks of one engine: who waits for some, who has which, and prefixes that are found while nobody needs them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from kvplan.traffic.arrivals import HASHED

if TYPE_CHECKING:
    from simpy import Environment, Event

Hash = int | str


@dataclass(eq=False, slots=True)
class BlockGrant:
    """Blocks of one request: `shared` are its hashed ones that others may have, too, `own` counts the rest.

    `hits` are tokens that were there already.
    """

    shared: list[Hash] = field(default_factory=list)
    own: int = 0
    hits: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    blocks: int
    hashes: Sequence[Hash]
    granted: Event


class BlockPool:
    """`capacity` blocks of `tokens` tokens each. Who asks is served in turn; what is free keeps what it held until it
    is needed, what was used least recently first. `most` are the most blocks that were in use at once.
    """

    def __init__(self, env: Environment, capacity: int, tokens: int) -> None:
        self._env, self.capacity, self.tokens = env, capacity, tokens
        self.in_use = self.most = 0
        self._unit = -(-HASHED // tokens)
        self._waiting: deque[_Waiting] = deque()
        self._users: dict[Hash, int] = {}
        self._idle: OrderedDict[Hash, None] = OrderedDict()

    @property
    def free(self) -> int:
        return self.capacity - self.in_use

    def blocks(self, tokens: int) -> int:
        """How many blocks hold `tokens` tokens."""
        return -(-tokens // self.tokens)

    def fits(self, tokens: int) -> bool:
        """Whether all of a request of `tokens` tokens could ever be here."""
        return self.blocks(tokens) <= self.capacity

    def take(self, tokens: int, hashes: Sequence[Hash]) -> Event:
        """An event with the BlockGrant of a request of `tokens` tokens, which fit into the pool, once there is room."""
        waiting = _Waiting(self.blocks(tokens), hashes, self._env.event())
        self._waiting.append(waiting)
        self._serve()
        return waiting.granted

    def leave(self, granted: Event) -> None:
        """Give up waiting, or give back what was granted."""
        if granted.triggered:
            self.give_back(granted.value)
            return
        self._waiting = deque(each for each in self._waiting if each.granted is not granted)
        self._serve()

    def filled(self, grant: BlockGrant, hashes: Sequence[Hash]) -> None:
        """The blocks hold what they are for: from now on others find them."""
        for each in hashes[len(grant.shared) :]:
            if self._known(each) or grant.own < self._unit:
                return
            self._users[each] = 1
            grant.shared.append(each)
            grant.own -= self._unit

    def give_back(self, grant: BlockGrant) -> None:
        """Blocks are free again."""
        self.in_use -= grant.own
        for each in reversed(grant.shared):
            self._users[each] -= 1
            if not self._users[each]:
                del self._users[each]
                self._idle[each] = None
                self.in_use -= self._unit
        self._evict()
        self._serve()

    def _serve(self) -> None:
        while self._waiting and (grant := self._granted(self._waiting[0])) is not None:
            self._waiting.popleft().granted.succeed(grant)

    def _granted(self, waiting: _Waiting) -> BlockGrant | None:
        """Blocks for who is next, None where there is no room."""
        found = list(takewhile(self._known, waiting.hashes[: waiting.blocks // self._unit]))
        woken = sum(each in self._idle for each in found)
        own = waiting.blocks - len(found) * self._unit
        if self.in_use + woken * self._unit + own > self.capacity:
            return None
        for each in found:
            self._idle.pop(each, None)
            self._users[each] = self._users.get(each, 0) + 1
        self.in_use += woken * self._unit + own
        self.most = max(self.most, self.in_use)
        self._evict()
        return BlockGrant(found, own, len(found) * HASHED)

    def _known(self, each: Hash) -> bool:
        return each in self._users or each in self._idle

    def _evict(self) -> None:
        while self._idle and self.in_use + len(self._idle) * self._unit > self.capacity:
            self._idle.popitem(last=False)
