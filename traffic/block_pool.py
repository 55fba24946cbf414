"""KV blocks of one engine: waiting requests, holders of blocks, and idle prefixes that can be found again."""

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
    """Blocks of one request: `shared` are its hashed ones, which others may have, too; `own` counts the rest.

    `hits` are tokens that the pool already had.
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
    """`capacity` blocks of `tokens` tokens each. Requests are served in turn. A free block keeps its content until it
    is needed, the least recently used one first. `most` is the highest number of blocks in use at once.
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
        """Return the number of blocks for `tokens` tokens."""
        return -(-tokens // self.tokens)

    def fits(self, tokens: int) -> bool:
        """Whether a request of `tokens` tokens can ever fit."""
        return self.blocks(tokens) <= self.capacity

    def take(self, tokens: int, hashes: Sequence[Hash]) -> Event:
        """Return an event with the BlockGrant of a request of `tokens` tokens that fit, once there is room."""
        waiting = _Waiting(self.blocks(tokens), hashes, self._env.event())
        self._waiting.append(waiting)
        self._serve()
        return waiting.granted

    def leave(self, granted: Event) -> None:
        """Give up waiting, or give back the grant."""
        if granted.triggered:
            self.give_back(granted.value)
            return
        self._waiting = deque(each for each in self._waiting if each.granted is not granted)
        self._serve()

    def filled(self, grant: BlockGrant, hashes: Sequence[Hash]) -> None:
        """Note that the blocks have their content: from now on others find them."""
        for each in hashes[len(grant.shared) :]:
            if self._known(each) or grant.own < self._unit:
                return
            self._users[each] = 1
            grant.shared.append(each)
            grant.own -= self._unit

    def give_back(self, grant: BlockGrant) -> None:
        """Free the blocks of a grant."""
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
        while self._waiting and (grant := self._grant(self._waiting[0])) is not None:
            self._waiting.popleft().granted.succeed(grant)

    def _grant(self, waiting: _Waiting) -> BlockGrant | None:
        """Return blocks for the next request, None if there is no room."""
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
