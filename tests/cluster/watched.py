"""A transport between a worker and its own one: it counts what is not given back, and fails on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from kvplan.runtime.errors import NotBegunError, PeerLostError

SLOWEST = 30
# With what its own errors begin.
RIG = "the rig "


class Held:
    """A handle or a prepared list, counted until it is released; a slow one is not done for some polls."""

    def __init__(self, owner: Watched, kind: str, inner: Any, slow: int = 0) -> None:
        self.owner, self.kind, self.inner, self.slow, self.released = owner, kind, inner, slow, False
        owner.live[kind] += 1

    def poll(self) -> bool:
        if self.owner.odds.get("stuck"):
            return False
        self.slow -= 1
        return self.slow < 0 and bool(self.inner.poll())

    def descriptors(self) -> int | None:
        return self.inner.descriptors()

    def release(self) -> None:
        self.inner.release()
        if not self.released:
            self.released = True
            self.owner.live[self.kind] -= 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Watched:
    """`live` counts handles, lists and registrations.

    `odds` are the chances of a post to be slow, refused before it begins, or lost with its peer. While they have
    `stuck`, nothing is ever done.
    """

    def __init__(self, inner: Any, random: Random, odds: Mapping[str, float]) -> None:
        self.inner, self.random, self.odds = inner, random, dict(odds)
        self.live, self.faults = Counter[str](), Counter[str]()

    def register(self, regions: Any, mem_type: str) -> None:
        self.inner.register(regions, mem_type)
        self.live["registrations"] += 1

    def deregister(self) -> None:
        self.inner.deregister()
        self.live["registrations"] = 0

    def prepare(self, *arguments: Any) -> Held:
        return Held(self, "lists", self.inner.prepare(*arguments))

    def post(self, op: str, peer: str, local: Any, local_at: Any, remote: Any, remote_at: Any) -> Held:
        slow = self._fault(peer)
        inner = self.inner.post(op, peer, _bare(local), local_at, _bare(remote), remote_at)
        return Held(self, "handles", inner, slow)

    def post_spans(self, op: str, peer: str, *rest: Any) -> Held:
        slow = self._fault(peer)
        return Held(self, "handles", self.inner.post_spans(op, peer, *rest), slow)

    def close(self) -> None:
        self.inner.close()
        self.live.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _fault(self, peer: str) -> int:
        """For how many polls the next handle is slow. Raises what the dice say."""
        if self._dice("refused"):
            raise NotBegunError(f"{RIG}refuses this post")
        if self._dice("lost"):
            raise PeerLostError(f"{RIG}loses {peer}")
        return self.random.randrange(1, SLOWEST) if self._dice("slow") else 0

    def _dice(self, kind: str) -> bool:
        hit = self.random.random() < self.odds.get(kind, 0)
        self.faults[kind] += hit
        return hit


def _bare(prepared: Any) -> Any:
    return prepared.inner if isinstance(prepared, Held) else prepared
