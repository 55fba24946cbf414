"""The transport that fails on purpose: it counts, holds back and refuses as it is told."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cluster.watched import Held, Watched

from kvplan.runtime.errors import HandleError, NotBegunError, PeerLostError


class Inner:
    """A transport whose handles are done when they are polled."""

    def register(self, *arguments: Any) -> None: ...
    def deregister(self) -> None: ...
    def close(self) -> None: ...
    def prepare(self, *arguments: Any) -> Any:
        return SimpleNamespace(release=lambda: None)

    def post(self, op: str, peer: str, local: Any, local_at: Any, remote: Any, remote_at: Any) -> Any:
        assert not isinstance(local, Held)
        return SimpleNamespace(poll=lambda: True, release=lambda: None)


def watched(**odds: float) -> Watched:
    return Watched(Inner(), Random(1), odds)


def post(transport: Watched) -> Held:
    lists = transport.prepare(), transport.prepare()
    return transport.post("READ", "p", lists[0], [0], lists[1], [0])


def test_what_is_had_is_counted_until_it_is_given_back() -> None:
    transport = watched()
    transport.register([], "DRAM")
    handle = post(transport)
    assert transport.live == {"registrations": 1, "lists": 2, "handles": 1}
    for _ in range(2):
        handle.release()
    transport.deregister()
    assert {kind: count for kind, count in transport.live.items() if count} == {"lists": 2}


def test_what_is_not_given_back_stays_counted() -> None:
    transport = watched()
    handle = post(transport)

    def refuse() -> None:
        raise HandleError("under way")

    handle.inner.release = refuse
    with pytest.raises(HandleError):
        handle.release()
    assert transport.live["handles"] == 1


def test_faults_come_by_their_odds() -> None:
    with pytest.raises(NotBegunError):
        post(watched(refused=1))
    with pytest.raises(PeerLostError):
        post(watched(lost=1))
    assert post(watched()).poll()
    slow = post(watched(slow=1))
    polls = [slow.poll() for _ in range(40)]
    assert not polls[0]
    assert polls[-1]


def test_what_is_stuck_is_so_until_it_is_let_go() -> None:
    transport = watched(stuck=1)
    handle = post(transport)
    assert not any(handle.poll() for _ in range(100))
    transport.odds = {}
    assert handle.poll()
