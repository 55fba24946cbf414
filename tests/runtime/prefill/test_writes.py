"""Requests that are written, through a worker of each side: what the transport does to them. Rules are the core's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.decode.test_races import held, live, pair, rounds, writing
from tests.runtime.helpers.requests import ask
from tests.runtime.helpers.worlds import World
from tests.runtime.simulation.channels import Net, opened

from kvplan.runtime import InMemory, PrefillWorker, errors
from kvplan.runtime.control.messages import Stopped, ToDecode
from kvplan.runtime.transport.base import HandleState


def stopped(net: Net) -> list[Stopped]:
    """How the prefill worker has said that it stopped, which the decode worker has not heard."""
    heard = [word for data in live(net).down.take() for word in opened(data, ToDecode)]
    return [word for word in heard if isinstance(word, Stopped)]


def left(net: Net) -> tuple[World, PrefillWorker]:
    """A request that was given up while it is written, of which prefill has heard."""
    made = pair(net, "push")
    transfer = writing(made)
    (source,) = made.prefill
    live(net).down.take()
    transfer.cancel()
    source.run_once()
    return made, source


def test_nothing_more_is_written_to_an_engine_that_was_dropped(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    (source,) = made.prefill
    source.drop("decode")
    assert [(write.phase, write.under_way) for write in source.inspect().writes] == [("ended", True)]
    made.hub.frozen.clear()
    source.run_once()
    assert source.inspect().writes == ()


def test_what_a_stopped_push_still_reads_keeps_the_memory_registered(net: Net) -> None:
    made, source = left(net)
    source.withdraw("r")
    assert [one.why for one in source.released()] == ["withdrawn"]
    with pytest.raises(errors.HandleError, match="1 still written to decode: wait, end the processes there, or close"):
        source.suspend()
    source.drain(1)
    assert not source.drained()
    made.hub.frozen.clear()
    source.run_once()
    assert source.drained()
    source.suspend()


def test_who_leaves_is_told_that_the_connection_broke(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    made, source = left(net)
    monkeypatch.setattr(made.transport(source), "lost", lambda peer: True)
    made.hub.frozen.clear()
    source.run_once()
    assert stopped(net) == [Stopped("r", lost=True)]


def test_what_failed_is_remembered_before_its_peer_is_met_again(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A post that failed in another way is over once its peer is lost; by then that may have been met again."""
    handles = posted(monkeypatch)
    source = left(net)[1]
    for state, said in ((HandleState.FAILED, []), (HandleState.CUT, [Stopped("r", lost=True)])):
        for handle in handles:
            monkeypatch.setattr(handle, "state", state)
        source.run_once()
        assert (stopped(net), len(source.inspect().writes)) == (said, 1 - len(said))


def posted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The handles of all that is posted from now on."""
    found, post_spans, post = list[Any](), InMemory.post_spans, InMemory.post

    def keeping(call: Any) -> Any:
        def kept(*arguments: Any) -> Any:
            found.append(call(*arguments))
            return found[-1]

        return kept

    monkeypatch.setattr(InMemory, "post", keeping(post))
    monkeypatch.setattr(InMemory, "post_spans", keeping(post_spans))
    return found


def test_a_worker_whose_connection_broke_is_met_again_before_it_is_written_to(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair(net, "push")
    source, added = made.transport(made.prefill[0]), list[bytes]()
    add_peer = source.add_peer

    def add(metadata: bytes) -> str:
        added.append(metadata)
        return add_peer(metadata)

    monkeypatch.setattr(source, "broken", lambda peer: not added)
    monkeypatch.setattr(source, "add_peer", add)
    held(made)
    transfer = made.decode[0].submit(ask(made, (0, 12)), 20)
    rounds(made, net)
    assert (transfer.state, added) == ("done", [made.transport(made.decode[0]).metadata()])


def test_who_cannot_be_met_again_is_told_so(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pair(net, "push")

    def add_peer(metadata: bytes) -> str:
        raise errors.NotBegunError("ask again")

    monkeypatch.setattr(made.transport(made.prefill[0]), "broken", lambda peer: True)
    monkeypatch.setattr(made.transport(made.prefill[0]), "add_peer", add_peer)
    held(made)
    transfer = made.decode[0].submit(ask(made, (0, 12)), 20)
    rounds(made, net)
    assert transfer.state == "failed"
    assert "ask again" in str(transfer.error)
