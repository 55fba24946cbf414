"""The life of a NIXL agent: peers that are lost and met again, what is given back, what a close leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.agents import Two, has_nixl, index, region

from kvplan.runtime import Nixl, errors
from kvplan.runtime.transport.base import HandleState

if not has_nixl():
    pytest.skip("NIXL is not installed", allow_module_level=True)


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two("nixl")
    yield made
    made.close()


def test_a_probe_is_sent_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = [0.0], list[bytes]()
    reader, owner = Nixl("reader", clock=lambda: clock[0]), Nixl("owner")
    peer = reader.add_peer(owner.metadata())
    monkeypatch.setattr(reader.agent, "send_notif", lambda peer, message: sent.append(message))
    for time_ in (0.0, 0.1, 0.19, 0.2, 0.3, 0.5):
        clock[0] = time_
        assert not reader.lost(peer)
    assert sent == [b""] * 3
    assert not reader.lost("nobody")
    reader.close()
    owner.close()


def test_what_was_given_back_is_met_again_by_another_name(two: Two) -> None:
    """The lists of before, and the old name, are no good; the new metadata is."""
    old, metadata, (local, remote) = two.owner.name, two.owner.metadata(), two.lists()
    two.owner.deregister()
    two.reader.deregister()
    with pytest.raises(errors.HandleError, match="after its release"):
        two.reader.post("READ", two.peer, local, index(0), remote, index(0))
    local.release()
    two.owner.register(region(two.theirs), "DRAM")
    two.reader.register(region(two.mine), "DRAM")
    assert (two.owner.name != old, two.owner.metadata() != metadata) == (True, True)
    assert two.reader.peers == set()
    two.peer = two.reader.add_peer(two.owner.metadata())
    two.finish(two.post(2))
    np.testing.assert_array_equal(two.mine[128:192], two.theirs[128:192])


def test_close_tries_every_step(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, calls = two.post(1), list[str]()
    two.finish(handle)
    handle.release()

    def fail(name: str) -> Callable[..., None]:
        def call(*_: object) -> None:
            calls.append(name)
            raise RuntimeError(name)

        return call

    for name in ("remove_remote_agent", "deregister_memory"):
        monkeypatch.setattr(type(two.reader.agent), name, fail(name))
    two.reader.close()
    two.reader.close()
    assert calls == ["remove_remote_agent", "deregister_memory"]
    with pytest.raises(errors.TransportError, match="is closed"):
        _ = two.reader.agent


def test_calls_after_close_are_typed_errors(two: Two) -> None:
    local, remote = two.lists()
    two.reader.close()
    spans = region(two.mine)
    for call in (
        two.reader.metadata,
        two.reader.progress,
        lambda: two.reader.lost(two.peer),
        two.reader.deregister,
        lambda: two.reader.add_peer(b"x"),
        lambda: two.reader.register(spans, "DRAM"),
        lambda: two.reader.prepare(None, np.array([[8, 64, 0, 64, 1]]), "DRAM"),
        lambda: two.reader.post("READ", two.peer, local, index(0), remote, index(0)),
        lambda: two.reader.post_spans("READ", two.peer, spans, "DRAM", spans, "DRAM"),
    ):
        with pytest.raises(errors.TransportError, match="is closed"):
            call()


def test_a_peer_whose_connection_broke_is_met_anew(two: Two) -> None:
    """The peer keeps its name but needs new lists: the old ones are useless."""
    before, remote = two.lists()
    two.reader.found_lost(two.peer)
    assert two.reader.add_peer(two.owner.metadata()) == two.peer
    assert not two.reader.lost(two.peer)
    with pytest.raises(errors.HandleError, match="after its release"):
        two.reader.post("READ", two.peer, before, index(0), remote, index(0))
    two.finish(two.post(2))
    np.testing.assert_array_equal(two.mine[128:192], two.theirs[128:192])


def test_a_peer_is_not_met_anew_while_a_transfer_with_it_may_move_bytes(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = two.post(1)
    monkeypatch.setattr(handle, "state", HandleState.POSTED)
    two.reader.found_lost(two.peer)
    with pytest.raises(errors.NotBegunError, match="1 transfers by it have not ended: ask again"):
        two.reader.add_peer(two.owner.metadata())
    assert two.reader.lost(two.peer)
    two.finish(handle)
    handle.release()
    assert two.reader.add_peer(two.owner.metadata()) == two.peer


def test_a_post_that_finds_the_connection_broken_leaves_nothing_under_way(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that keeps the error would also keep the handle, and so would block the reconnect."""
    broken = two.reader.bindings.nixlRemoteDisconnectError

    def raise_(handle: object) -> str:
        raise broken("gone")

    kept = list[errors.PeerLostError]()
    with monkeypatch.context() as patch:
        patch.setattr(two.reader.agent, "transfer", raise_)
        try:
            two.post(1)
        except errors.PeerLostError as error:
            kept.append(error)
    assert (len(kept), two.reader.broken(two.peer)) == (1, True)
    assert two.reader.add_peer(two.owner.metadata()) == two.peer
    assert not two.reader.broken(two.peer)
    two.finish(two.post(2))


def test_a_peer_that_cannot_be_met_anew_stays_lost(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.reader.found_lost(two.peer)
    added, add = [0], two.reader.agent.add_remote_agent

    def refuse(metadata: bytes) -> object:
        added[0] += 1
        if added[0] == 2:
            raise RuntimeError("no")
        return add(metadata)

    with monkeypatch.context() as patch:
        patch.setattr(two.reader.agent, "add_remote_agent", refuse)
        with pytest.raises(errors.TransportError, match="no"):
            two.reader.add_peer(two.owner.metadata())
    assert two.reader.lost(two.peer)
    assert two.reader.add_peer(two.owner.metadata()) == two.peer
    assert not two.reader.lost(two.peer)


def sockets() -> int:
    """How many sockets this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def test_a_living_peer_that_is_forgotten_and_met_again_and_again_has_one_connection(two: Two) -> None:
    two.finish(two.post(1))
    before = sockets()
    for _ in range(10):
        two.reader.remove_peer(two.peer)
        assert two.reader.peers == set()
        assert two.reader.add_peer(two.owner.metadata()) == two.peer
        two.finish(two.post(2))
    assert sockets() == before


def test_nothing_reaches_who_was_forgotten(two: Two) -> None:
    """Its connection stays; what was prepared is no good, now and once it is met again."""
    (local, remote), spans = two.lists(), (region(two.mine), region(two.theirs))
    two.finish(two.post(1))
    two.reader.remove_peer(two.peer)
    with pytest.raises(errors.PeerLostError, match="forgotten"):
        two.reader.post_spans("READ", two.peer, spans[0], "DRAM", spans[1], "DRAM")
    with pytest.raises(errors.PeerLostError, match="forgotten"):
        two.lists()
    for _ in range(2):
        with pytest.raises(errors.HandleError, match="after its release"):
            two.reader.post("READ", two.peer, local, index(0), remote, index(0))
        two.reader.add_peer(two.owner.metadata())
    two.finish(two.post(2))


def test_of_many_who_were_forgotten_the_last_ones_stay_connected(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.transport.nixl_peers.KEPT", 2)
    owners, removed = [Nixl("other") for _ in range(3)], removals(two, monkeypatch)
    peers = [two.reader.add_peer(owner.metadata()) for owner in owners]
    two.reader.remove_peer(peers[0])
    two.reader.remove_peer(peers[1])
    two.reader.add_peer(owners[0].metadata())
    two.reader.remove_peer(peers[0])
    assert removed == []
    two.reader.remove_peer(peers[2])
    assert removed == [peers[1]]
    two.finish(two.post(2))
    two.reader.close()
    assert sorted(removed[1:]) == sorted({two.peer, peers[0], peers[2]})
    for owner in owners:
        owner.close()


def test_who_was_forgotten_and_whose_connection_broke_is_connected_anew(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, broken = removals(two, monkeypatch), two.reader.bindings.nixlRemoteDisconnectError

    def raise_(peer: str, message: bytes) -> None:
        raise broken("gone")

    two.reader.remove_peer(two.peer)
    with monkeypatch.context() as patch:
        patch.setattr(two.reader.agent, "send_notif", raise_)
        assert two.reader.add_peer(two.owner.metadata()) == two.peer
    assert (removed, two.reader.broken(two.peer)) == ([two.peer], False)
    two.finish(two.post(2))


def test_what_a_read_finds_of_who_was_forgotten_is_remembered(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer is added again once that read is given back; a broken connection is not kept at all."""
    removed, handle = removals(two, monkeypatch), two.post(1)
    monkeypatch.setattr(handle, "state", HandleState.POSTED)
    two.reader.remove_peer(two.peer)
    two.reader.found_lost(two.peer)
    assert (two.reader.broken(two.peer), removed) == (False, [])
    with pytest.raises(errors.NotBegunError, match="1 transfers by it have not ended"):
        two.reader.add_peer(two.owner.metadata())
    assert two.reader.peers == set()
    two.finish(handle)
    handle.release()
    assert two.reader.add_peer(two.owner.metadata()) == two.peer
    assert (removed, two.reader.broken(two.peer)) == ([two.peer], False)
    two.reader.found_lost(two.peer)
    two.reader.remove_peer(two.peer)
    assert removed == [two.peer] * 2
    two.reader.found_lost(two.peer)
    two.peer = two.reader.add_peer(two.owner.metadata())
    two.finish(two.post(2))


def removals(two: Two, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The agents that NIXL is told to remove from now on."""
    told, remove = list[str](), two.reader.agent.remove_remote_agent

    def note(peer: str) -> Any:
        told.append(peer)
        return remove(peer)

    monkeypatch.setattr(two.reader.agent, "remove_remote_agent", note)
    return told
