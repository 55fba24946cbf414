"""Requests that are written, through a worker of each side: who is told what, and what is kept until then."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.runtime.decode.test_races import held, live, pair, rounds, writing
from tests.runtime.helpers.requests import ask, fed
from tests.runtime.helpers.worlds import World
from tests.runtime.simulation.channels import Net, opened, speak

from kvplan.runtime import Blocks, PrefillWorker, errors
from kvplan.runtime.control.messages import Failed, Leave, Stopped, ToDecode, WriteRequest, Written, pack
from kvplan.runtime.transport.handles import HandleState


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    made = Net(random.Random(0), slow=0)
    speak(made, monkeypatch)
    return made


def said(net: Net, *kinds: type) -> list[Any]:
    """What of these kinds the prefill worker has said, and the decode worker not heard."""
    heard = [word for data in live(net).down.take() for word in opened(data, ToDecode)]
    return [word for word in heard if isinstance(word, kinds)]


def leave(made: World, net: Net, alone: bool = False) -> None:
    """The decode worker gives request r up, and the prefill worker hears of it."""
    live(net).send(Leave("r", alone=alone))
    live(net).flush()
    made.prefill[0].run_once()


def writers(source: PrefillWorker) -> int:
    """How many writes read the blocks of the one request that is held."""
    (hold,) = source.inspect().holds
    return hold.writers


def client(made: World) -> Any:
    (found,) = made.prefill[0]._inbox.clients
    return found


def wanted(made: World, **change: Any) -> WriteRequest:
    """What decode asks for, changed, of a request that it has not begun."""
    request = ask(made, (0, 12))
    asked = WriteRequest("r", (0, 12), {}, pack(request.prefill), pack(request.decode))
    return msgspec.structs.replace(asked, **change)


def test_nothing_is_written_when_the_lease_ran_out_meanwhile(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    (source,) = made.prefill
    said(net, object)
    net.time += 7
    source.run_once()
    assert source.released() == [], "it is being written from"
    made.hub.frozen.clear()
    source.run_once()
    failed = said(net, Written, Failed)
    assert {(type(word), getattr(word, "code", "")) for word in failed} == {(Failed, errors.LeaseError.code)}
    assert "its lease ran out while pin" in failed[0].message
    assert [one.why for one in source.released()] == ["expired"]


def test_a_request_is_written_to_a_worker_once_at_a_time(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    said(net, object)
    live(net).send(wanted(made))
    live(net).flush()
    made.prefill[0].run_once()
    (failed,) = said(net, Failed)
    assert (failed.code, "is being written: wait" in failed.message) == (errors.BadRequestError.code, True)
    assert len(made.prefill[0].inspect().writes) == 1


def test_blocks_that_decode_was_told_of_are_compared_before_a_byte_is_written(net: Net) -> None:
    made = pair(net, "push")
    request = ask(made, (0, 12))
    (source,) = made.prefill
    source.hold("r", request.prefill)
    other = pack({**request.prefill, "kv": Blocks(0, np.array([31, 32, 33]))})
    with pytest.raises(errors.LeaseError, match="other blocks of group 'kv'"):
        source._inbox.writes.want(client(made), wanted(made, prefill=other), source._inbox.sources["r"])
    assert len(source.inspect().writes) == 0


@pytest.mark.parametrize("tokens", [(0, 8), (0, 12)])
def test_only_what_was_opened_is_written(net: Net, tokens: tuple[int, int]) -> None:
    made = pair(net, "push")
    (source,) = made.prefill
    source.open("r", (4, 12))
    with pytest.raises(errors.BadRequestError, match="was opened for"):
        source._inbox.writes.want(client(made), wanted(made, tokens=tokens), source._inbox.sources["r"])


def test_chunks_are_written_when_they_are_computed(net: Net) -> None:
    made = pair(net, "push")
    request, step = ask(made, (0, 12)), SimpleNamespace(query=lambda: False)
    (source,), (target,) = made.prefill, made.decode
    source.open("r", (0, 12))
    source.offer("r", (0, 12), request.prefill, after=step, last=True)
    transfer = target.open(fed(request), 20)
    rounds(made, net)
    seen = source.inspect()
    assert [write.phase for write in seen.writes] == ["writing"]
    assert (seen.bytes_in_flight, seen.slices, transfer.state) == (0, (), "running")
    step.query = lambda: True
    rounds(made, net)
    assert transfer.state == "done"


def test_what_is_held_is_written_in_the_round_in_which_it_is_asked_for(net: Net) -> None:
    made = pair(net, "push")
    held(made)
    (source,) = made.prefill
    source._inbox.writes.want(client(made), wanted(made), source._inbox.sources["r"])
    source.run_once()
    (written,) = said(net, Written)
    assert (written.request, written.size > 0) == ("r", True)


def left(net: Net) -> tuple[World, PrefillWorker]:
    """A request that was given up while it is written, of which prefill has heard."""
    made = pair(net, "push")
    transfer = writing(made)
    (source,) = made.prefill
    said(net, object)
    transfer.cancel()
    source.run_once()
    return made, source


def test_who_leaves_is_told_when_nothing_is_written_any_more(net: Net) -> None:
    made, source = left(net)
    source.run_once()
    assert said(net, Stopped) == []
    assert (len(source.inspect().writes), writers(source)) == (1, 1)
    made.hub.frozen.clear()
    source.run_once()
    assert said(net, Stopped) == [Stopped("r", lost=False)]
    assert (len(source.inspect().writes), writers(source)) == (0, 0)
    assert source.inspect().bytes_in_flight == 0


def test_who_leaves_what_is_not_written_is_told_at_once(net: Net) -> None:
    made = pair(net, "push")
    held(made)
    leave(made, net)
    assert said(net, Stopped) == [Stopped("r", lost=False)]


def test_another_workers_leave_stops_no_write(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    writes, sent = made.prefill[0]._inbox.writes, list[Any]()
    one = client(made)
    writes._send = lambda to, message: sent.append(message)
    writes.leave(SimpleNamespace(claimant=replace(one.claimant, worker=1)), "r")  # type: ignore[arg-type]
    (write,) = writes._all.values()
    assert (write.writing, sent) == (True, [Stopped("r", lost=False)])


def test_stopped_is_said_once_all_that_was_given_up_is_over(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    writes, sent = made.prefill[0]._inbox.writes, list[Any]()
    writes._send = lambda to, message: sent.append(message)
    (write,) = writes._all.values()
    again = replace(write.client, identity=b"another connection")
    made.prefill[0]._leases.begin_write("r")
    busy = SimpleNamespace(handles=[], settled=lambda: False)
    stopping: Any = SimpleNamespace(stop=lambda: [busy])
    writes._all[again, "r"] = replace(write, client=again, slices=[], executor=stopping)
    writes.leave(again, "r")
    made.hub.frozen.clear()
    writes.step()
    assert (len(writes), sent) == (1, [])


def test_a_hold_that_ends_ends_what_is_written_of_it(net: Net) -> None:
    made = pair(net, "push")
    request, step = ask(made, (0, 12)), SimpleNamespace(query=lambda: False)
    (source,), (target,) = made.prefill, made.decode
    source.hold("r", request.prefill, after=step)
    transfer = target.open(fed(request), 20)
    rounds(made, net)
    source.withdraw("r")
    rounds(made, net, 1)
    assert isinstance(transfer.error, errors.WithdrawnError)
    rounds(made, net)
    assert (target.quarantined(), len(source.inspect().writes)) == ({}, 0)
    assert [one.why for one in source.released()] == ["withdrawn"]


def test_what_is_withdrawn_is_written_no_further(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    (source,) = made.prefill
    source.withdraw("r")
    assert [write.phase for write in source.inspect().writes] == ["ended"]
    assert isinstance(said(net, Failed)[0], Failed)


def test_nothing_more_is_written_to_an_engine_that_was_dropped(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    (source,) = made.prefill
    source.drop("decode")
    assert [write.phase for write in source.inspect().writes] == ["ended"]
    assert [write.under_way for write in source.inspect().writes] == [True]
    source.drop("decode", dead=True)
    assert len(source.inspect().writes) == 0


@pytest.mark.parametrize("broke", [False, True])
def test_who_leaves_is_told_whether_the_connection_broke(
    net: Net, broke: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, source = left(net)
    monkeypatch.setattr(made.transport(source), "lost", lambda peer: broke)
    made.hub.frozen.clear()
    source.run_once()
    assert said(net, Stopped) == [Stopped("r", lost=broke)]
    # Who asks once more is told the same, and of a stranger nothing is known.
    leave(made, net)
    assert said(net, Stopped) == [Stopped("r", lost=broke)]
    assert source._inbox.writes.stopped("r") == Stopped("r", lost=True)


def test_a_worker_whose_connection_broke_is_met_anew_before_it_is_written_to(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pair(net, "push")
    (source,), one = made.prefill, client(made)
    stage, added, add_peer = one.push.stage, list[bytes](), made.transport(source).add_peer
    monkeypatch.setattr(made.transport(source), "broken", lambda peer: not added)

    def add(metadata: bytes) -> str:
        added.append(metadata)
        return add_peer(metadata)

    monkeypatch.setattr(made.transport(source), "add_peer", add)
    held(made)
    transfer = made.decode[0].submit(ask(made, (0, 12)), 20)
    rounds(made, net)
    assert (transfer.state, added) == ("done", [one.push.metadata])
    assert one.push.stage is stage, "buffers that were lent are still asked of it"


def test_who_cannot_be_met_anew_is_told_so(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_write_that_is_written_is_written(net: Net) -> None:
    """Nothing of it lingers, whoever asks afterwards."""
    made = pair(net, "push")
    held(made)
    transfer = made.decode[0].submit(ask(made, (0, 12)), 20)
    rounds(made, net)
    assert transfer.state == "done"
    leave(made, net)
    assert said(net, Stopped) == [Stopped("r", lost=False)]


def test_what_failed_is_remembered_before_its_peer_is_met_anew(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A post that failed in another way is over once its peer is lost; by then that may have been met anew."""
    source = left(net)[1]
    (write,) = source._inbox.writes._all.values()
    handles: list[Any] = [handle for slice_ in write.slices for handle in slice_.handles]
    for handle in handles:
        monkeypatch.setattr(handle, "state", HandleState.FAILED)
    source.run_once()
    assert (said(net, Stopped), len(source.inspect().writes)) == ([], 1)
    for handle in handles:
        monkeypatch.setattr(handle, "state", HandleState.CUT)
    source.run_once()
    assert said(net, Stopped) == [Stopped("r", lost=True)]


def test_of_what_is_buried_nobody_says_that_it_has_stopped(net: Net) -> None:
    made = pair(net, "push")
    writing(made)
    (source,), one = made.prefill, client(made)
    source.drop("decode", dead=True)
    said(net, object)
    assert source._inbox.writes.stopped("r") is None
    source._inbox.writes.leave(one, "r")
    made.hub.frozen.clear()
    source.run_once()
    assert source._inbox.writes.stopped("r") == Stopped("r", lost=True)


def test_who_pulls_now_is_told_that_what_was_pushed_has_stopped(net: Net) -> None:
    made = pair(net, "pull")
    leave(made, net, alone=True)
    assert said(net, Stopped) == [Stopped("r", lost=False)]
