"""Engines that prefill and decode: one worker, one registration, one connection with each peer, both ways over it."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest
from tests.runtime.helpers import control
from tests.runtime.helpers.both import Both, Engines, check, engines, hold, move, request, submit
from tests.runtime.helpers.both_process import SHAPES
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.steered import Clock, Flag
from tests.runtime.helpers.waiting import until

from kvplan.plan.errors import KvplanError
from kvplan.runtime import DecodeWorker
from kvplan.runtime.control.channel import ControlClient
from kvplan.runtime.control.lines import PrefillLine
from kvplan.runtime.control.messages import Bye
from kvplan.runtime.decode.prefill_engine import PrefillEngine
from kvplan.runtime.errors import DrainingError, HandleError, HandshakeError, TransferError, TransportError
from kvplan.runtime.inspection import ConnectionState

ONE = Shape(1), Shape(1)


def pair(made: Engines, shapes: tuple[Shape, Shape] = ONE, **options: object) -> tuple[Both, Both]:
    a = made.engine("a", "a1", shapes, **options)
    return a, made.engine("b", "b1", shapes[::-1], **options)


def meet(one: Both, other: Both, mode: str = "auto") -> None:
    for worker in one.decode:
        worker.connect(other.address, 20, mode=mode)


def test_the_halves_share_one_registration_one_server_and_one_owner() -> None:
    with engines() as made:
        a, b = pair(made)
        meet(a, b)
        meet(b, a)
        for one in (a, b):
            states = [half.inspect() for half in (one.prefill[0], one.decode[0])]
            assert states[0].transport == states[1].transport
            assert states[0].peers == states[1].peers
            assert states[0].connections == states[1].connections
        assert a.connections() == {ConnectionState("b", "b1", 0, True, True, True)}
        assert b.connections() == {ConnectionState("a", "a1", 0, False, True, True)}


@pytest.mark.parametrize("modes", [("pull", "pull"), ("push", "pull"), ("pull", "push"), ("push", "push")])
@pytest.mark.parametrize("ways", [(), ("pack", "unpack")])
def test_both_ways_over_one_connection(modes: tuple[str, str], ways: tuple[str, ...]) -> None:
    with engines(*ways) as made:
        a, b = pair(made, (Shape(1, 4), Shape(1, 2, 2)))
        meet(a, b, modes[0])
        meet(b, a, modes[1])
        for seed in range(3):
            move(a, b, f"ab{seed}", seed)
            move(b, a, f"ba{seed}", seed + 3)
        assert len(a.connections()) == len(b.connections()) == 1


def test_with_keys_a_line_is_used_if_the_peer_has_the_key_that_is_expected() -> None:
    """An engine with a key may claim to answer at any address: here c names the address of a."""
    a_keys, b_keys = control.pair()
    c_keys = replace(control.pair()[0], peers=frozenset({b_keys.public}))
    with engines() as made:
        a = made.engine("a", "a1", ONE, keys=a_keys)
        b = made.engine("b", "b1", ONE, keys=replace(b_keys, peers=frozenset({a_keys.public, c_keys.public})))
        c = made.engine("c", "c1", ONE, keys=c_keys)
        for one in (a, c):
            one.prefill[0].announce([a.address])
            meet(one, b)
        b.decode[0].connect(a.address, 20, a_keys.public)
        assert {(one.engine, one.made_here, one.asks) for one in b.connections()} == {
            ("a", False, True),
            ("c", False, False),
        }
        move(a, b, "ab", 1)
        b.decode[0].drop("a")
        a.close()
        until(lambda: {one.engine for one in b.connections()} == {"c"})
        with pytest.raises(HandshakeError, match="did not answer"):
            b.decode[0].connect(a.address, 1, a_keys.public)


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("under_way", [False, True])
def test_when_an_engine_ends_both_ways_end_and_its_successor_is_met(who: int, under_way: bool) -> None:
    """Either side may have made the connection; requests wait to be held, or their bytes are moving."""
    with engines() as made:
        pairs = pair(made)
        a, b = pairs
        meet(a, b)
        meet(b, a)
        stays, goes = pairs[1 - who], pairs[who]
        wanted = request((goes.shape, stays.shape), "stays", 0), request((stays.shape, goes.shape), "goes", 1)
        if under_way:
            made.hub.frozen.update(half.inspect().transport for half in (a.prefill[0], b.prefill[0]))
            for source, asked, seed in ((goes, wanted[0], 0), (stays, wanted[1], 1)):
                hold(source, asked, seed)
        waiting = submit(stays, wanted[0], goes.name, 60)
        waiting += submit(goes, wanted[1], stays.name, 60)
        phase = "moving" if under_way else "claiming"
        until(lambda: all(phases(one) == {phase} for one in pairs))
        goes.close()
        for transfer in waiting:
            with pytest.raises(KvplanError, match=r"lost|closed|gone"):
                transfer.wait()
        made.hub.frozen.clear()
        until(lambda: not stays.connections() and not stays.decode[0].quarantined())
        again = made.engine(goes.name, "again", ONE)
        meet(stays, again)
        meet(again, stays)
        move(again, stays, "ab", 2)
        move(stays, again, "ba", 0)
        assert len(stays.connections()) == 1


def test_a_connection_that_a_peer_made_is_tried_and_found_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed says no goodbye, and ZeroMQ does not say which connection of a server has ended."""
    send = PrefillLine.send

    def silent(line: PrefillLine, message: msgspec.Struct) -> object:
        return None if isinstance(message, Bye) else send(line, message)

    with engines() as made:
        a, b = pair(made)
        meet(b, a)
        meet(a, b)
        assert a.connections() == {ConnectionState("b", "b1", 0, False, True, True)}
        (waiting,) = submit(a, request((b.shape, a.shape), "ba", 1), "b", 60)
        until(lambda: phases(a) == {"claiming"})
        monkeypatch.setattr(PrefillLine, "send", silent)
        b.close()
        until(lambda: waiting.ended)
        assert isinstance(waiting.error, TransferError)
        assert "is lost" in str(waiting.error)
        until(lambda: a.decode[0].peers() == ())


def phases(one: Both) -> set[str]:
    """The phases of what an engine loads."""
    return {part.phase for asked in one.decode[0].inspect().requests for part in asked.parts}


def test_it_is_not_suspended_while_the_other_way_is_in_use() -> None:
    with engines() as made:
        a, b = pair(made)
        meet(a, b)
        meet(b, a)
        asked = request((a.shape, b.shape), "ab", 0)
        hold(a, asked, 0)
        with pytest.raises(HandleError, match="1 held: withdraw them"):
            a.decode[0].suspend()
        assert [one.wait().state for one in submit(b, asked, "a")] == ["done"]
        until(lambda: any(one.request == "ab" for one in a.prefill[0].released()))
        (transfer,) = submit(a, request((b.shape, a.shape), "ba", 1), "b", 60)
        with pytest.raises(HandleError, match="cannot be suspended"):
            a.prefill[0].suspend()
        transfer.cancel()
        until(lambda: not a.decode[0].quarantined())
        pool = a.prefill[0].endpoint.pool
        a.decode[0].suspend()
        assert "suspended" in " ".join(a.prefill[0].unready())
        a.prefill[0].resume(pool)
        until(lambda: not b.decode[0].peers())
        meet(a, b)
        meet(b, a)
        move(a, b, "again", 1)
        move(b, a, "again", 2)


def test_a_worker_drains_with_both_halves() -> None:
    with engines() as made:
        a, b = pair(made)
        meet(a, b)
        meet(b, a)
        a.prefill[0].drain(5)
        assert all("drains" in " ".join(half.unready()) for half in (a.prefill[0], a.decode[0]))
        with pytest.raises(DrainingError, match="drains"):
            submit(a, request((b.shape, a.shape), "ba", 1), "b")[0].wait()
        with pytest.raises(DrainingError, match="drains"):
            a.prefill[0].hold("r")
        assert a.prefill[0].drained()


def test_no_lease_runs_out_while_its_renewal_lies_in_a_line_that_was_made_from_here() -> None:
    """This engine asks over the same line: its other half may not have read it when leases are looked at."""
    clock = Clock()
    with engines() as made:
        a = made.engine("a", "a1", ONE)
        b = made.engine("b", "b1", ONE, lease=0.5, clock=clock, start=False)
        step = b.prefill[0].run_once
        meeting = b.decode[0].connect_soon(a.address, 20)
        until(meeting.done, step)
        meeting = a.decode[0].connect_soon(b.address, 20)
        until(meeting.done, step)
        assert b.connections() == {ConnectionState("a", "a1", 0, True, True, True)}
        event = Flag()
        b.prefill[0].hold("r", after=event)
        (transfer,) = submit(a, request((b.shape, a.shape), "r", 0), "b", 60)
        until(lambda: b.prefill[0].inspect().holds[0].promises, step)
        for _ in range(5):
            # Decode claims every twelfth of a second, by a clock of its own.
            time.sleep(0.3)
            clock.time += 0.6
            step()
            assert b.prefill[0].released() == []
        transfer.cancel()


def test_an_engine_whose_line_is_silent_is_met_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer's address says that it answers: one that does not is asked over a connection of its own."""
    monkeypatch.setattr("kvplan.runtime.control.handshake.PATIENCE", 0.2)
    with engines() as made:
        a, b = pair(made)
        meet(a, b)
        monkeypatch.setattr(ControlClient, "back", property(lambda _: (), lambda *_: None), raising=False)
        meet(b, a)
        move(a, b, "ab", 0)
        assert {(one.made_here, one.asks) for one in b.connections()} == {(True, True), (False, False)}


def test_the_second_half_takes_part_in_what_drives_the_first() -> None:
    with engines() as made:
        a = made.engine("a", "a1", ONE, start=False)
        b = made.engine("b", "b1", ONE)
        meet(a, b)
        assert not a.decode[0].endpoint.owner.driven
        asked = request((b.shape, a.shape), "ba", 0)
        hold(b, asked, 0)
        assert [one.wait().state for one in submit(a, asked, "b")] == ["done"]
        with pytest.raises(HandleError, match="started before"):
            b.decode[0].start()
        a.decode[0].start()
        assert a.decode[0].endpoint.owner.driven
        assert isinstance(a.decode[0], DecodeWorker)


@pytest.mark.parametrize("ways", [(), ("pack", "unpack")])
def test_two_processes_over_nixl(ways: tuple[str, ...]) -> None:
    """Both directions at once over one connection, with one agent in each process."""
    command = [sys.executable, "-m", "tests.runtime.helpers.both_process", *ways]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        engines(*ways, nixl=True) as made,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        a = made.engine("a", "a1", SHAPES)
        a.decode[0].connect(other.stdout.readline().strip(), 30)
        asked = request(SHAPES, "ab", 0), request(SHAPES[::-1], "ba", 1)
        hold(a, asked[0], 0)
        print(f"meet {a.address}", file=other.stdin, flush=True)
        assert other.stdout.readline().strip() == "1"
        print("move", file=other.stdin, flush=True)
        for transfer in submit(a, asked[1], "b"):
            assert transfer.wait().state == "done"
        check(a, asked[1], 1)
        assert other.stdout.readline().strip() == "1"
        assert a.connections() == {ConnectionState("b", "b1", 0, True, True, True)}
        other.stdin.close()
    assert other.returncode == 0


def test_lines_of_an_engine_that_could_not_be_added_are_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is used the other way, too, may be asked over again at once."""
    with engines() as made:
        a, b = pair(made)
        b.decode[0].connect(a.address, 5, mode="pull")
        know = PrefillEngine.know

        def fails(_: PrefillEngine) -> None:
            monkeypatch.setattr(PrefillEngine, "know", know)
            raise TransportError("once")

        left, leave = list[PrefillLine](), PrefillLine.leave

        def noted(line: PrefillLine) -> None:
            left.append(line)
            leave(line)

        monkeypatch.setattr(PrefillEngine, "know", fails)
        monkeypatch.setattr(PrefillLine, "leave", noted)
        with pytest.raises(TransportError, match="once"):
            a.decode[0].connect(b.address, 5, mode="pull")
        until(lambda: not a.decode[0].inspect().engines)
        assert len(left) == 2, "after the question for the engine's card, and after the failure"
        a.decode[0].connect(b.address, 5, mode="pull")
        assert {(one.made_here, one.asks, one.answers) for one in a.connections()} == {(False, True, True)}
