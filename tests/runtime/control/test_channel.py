"""The control channel: access, messages, and the effects of a lost or hostile peer."""

from __future__ import annotations

import gc
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import pytest
import zmq
from tests.runtime.control.test_card import FIRST, HELLO, TWO
from tests.runtime.helpers.control import BIND, LONG, pair, unsealed
from tests.slowness import Patience

from kvplan.runtime import errors
from kvplan.runtime.control.card import MAGIC, PROTOCOL, Hello, Refusal, seal
from kvplan.runtime.control.channel import FAILURES, ControlClient, ControlServer
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.control.lines import LinePeer
from kvplan.runtime.control.messages import Claim, ClaimAnswers, Claimed, Leave, LossReason, Lost, Stopped
from kvplan.runtime.control.sockets import FRAME, OVERHEAD, QUEUE, REFUSED, _Peers

# Descriptors that a server takes, with its guard, and some.
SERVER = 16
CLAIM = Claim(1, ("a", "b"))
HELD = ClaimAnswers(1, 30.0, (Claimed("a", 7), Lost("b", LossReason.UNKNOWN, "why")))


def until(wait: Callable[[float], None], found: Callable[[], Any]) -> Any:
    """The first true value that `found` returns."""
    patience = Patience(LONG)
    while patience.lasts():
        if value := found():
            return value
        wait(0.05)
    return pytest.fail("nothing came")


def talk(desk: ControlServer, line: ControlClient) -> None:
    """A message there and one back."""
    assert line.send(CLAIM)
    identity = until(desk.wait, lambda: [one for one, message in desk.receive() if message == CLAIM])[0]
    assert desk.send(identity, HELD)
    assert until(line.wait, line.receive) == [HELD]


@pytest.mark.parametrize("bind", [BIND, "tcp://[::1]:*", "ipc://@{}"])
@pytest.mark.parametrize("secure", [False, True])
def test_messages_go_there_and_back(bind: str, secure: bool, tmp_path) -> None:
    if "[" in bind and not ipv6():
        pytest.skip("this machine has no IPv6")
    one, other = pair() if secure else (Plain(), Plain())
    desk = ControlServer(bind.replace("@{}", f"{tmp_path}/s"), one)
    line = ControlClient(desk.address, other)
    talk(desk, line)
    line.close()
    desk.close()


def ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_many_desks_and_lines_of_one_process_do_not_mix() -> None:
    pairs = [pair() for _ in range(3)]
    desks = [ControlServer(BIND, one) for one, _ in pairs]
    lines = [ControlClient(desk.address, other) for desk, (_, other) in zip(desks, pairs, strict=True)]
    for number, line in enumerate(lines):
        line.send(Leave(str(number)))
    for number, desk in enumerate(desks):
        assert [message for _, message in until(desk.wait, desk.receive)] == [Leave(str(number))]
    for line in lines:
        line.close()
    for desk in desks:
        desk.close()


def test_order_is_kept_and_receive_is_bounded() -> None:
    desk = ControlServer(BIND, Plain())
    line = ControlClient(desk.address, Plain())
    for number in range(100):
        assert line.send(Leave(str(number)))
    found: list = []
    while len(found) < 100:
        desk.wait(LONG)
        part = desk.receive(7)
        assert len(part) <= 7
        found += [message.request for _, message in part]
    assert found == [str(number) for number in range(100)]
    line.close()
    desk.close()


def test_what_is_gathered_is_one_message_each_way_and_keeps_its_order() -> None:
    one, other = pair()
    desk, said = ControlServer(BIND, one), [Leave(str(number)) for number in range(20)]
    line = ControlClient(desk.address, other)
    for side in (desk, line):
        side.gather()
    assert all(line.send(message) for message in said)
    desk.wait(0.1)
    assert desk.receive() == []
    line.flush()
    heard = until(desk.wait, lambda: desk.receive(7))
    identity = heard[0][0]
    assert (len(heard), desk.pending()) == (7, True), "the rest is there, and not read yet"
    assert [message for _, message in heard + desk.receive()] == said
    assert all(desk.send(identity, Stopped(str(number), lost=False)) for number in range(20))
    assert desk.flush() == []
    assert len(until(line.wait, lambda: line.receive(7))) == 7
    assert (line.pending(), len(line.receive())) == (True, 13)
    line.close()
    assert until(desk.wait, lambda: desk.send(identity, HELD) and desk.flush()) == [identity]
    desk.close()


def broken(line: ControlClient) -> errors.KvplanError:
    found = until(line.wait, line.broken)
    assert not line.send(CLAIM)
    line.close()
    return found


def test_a_key_that_is_not_let_in(caplog: pytest.LogCaptureFixture) -> None:
    (one, other), (stranger, _) = pair(), pair()
    desk = ControlServer(BIND, one)
    line = ControlClient(desk.address, stranger, one.public)
    line.send(CLAIM)
    error = broken(line)
    assert isinstance(error, errors.KeysError)
    assert one.public.decode() in str(error)
    assert stranger.public.decode() in str(error)
    (refused,) = [record for record in caplog.records if record.getMessage().startswith("key refused")]
    assert vars(refused)["facts"] == {"public": stranger.public.decode()}
    line = ControlClient(desk.address, other)
    talk(desk, line)
    line.close()
    desk.close()


def test_a_server_with_another_key() -> None:
    (one, other), (stranger, _) = pair(), pair()
    desk = ControlServer(BIND, one)
    error = broken(ControlClient(desk.address, other, stranger.public))
    assert isinstance(error, errors.KeysError)
    assert f"does not have public key {stranger.public.decode()}, ours is {other.public.decode()}" in str(error)
    desk.close()


@pytest.mark.parametrize("secure", [False, True])
def test_keys_on_one_side_only(secure: bool) -> None:
    one, other = pair()
    desk = ControlServer(BIND, one if secure else Plain())
    error = broken(ControlClient(desk.address, Plain() if secure else other))
    # Whether a server's last word comes before the end of the connection is a matter of luck.
    assert isinstance(error, errors.KeysError if not secure else errors.KeysError | errors.HandshakeError)
    assert "key" in str(error)
    assert desk.receive() == []
    desk.close()


def test_keys_must_be_chosen() -> None:
    keys, _ = pair()
    with pytest.raises(errors.KeysError, match=r"or Plain\(\) where anybody may connect, not a NoneType"):
        ControlServer(BIND, None)  # type: ignore[arg-type]
    with pytest.raises(errors.KeysError, match="not a str"):
        ControlClient("tcp://127.0.0.1:1", "plain")  # type: ignore[arg-type]
    with pytest.raises(errors.KeysError, match="no keys of our own"):
        ControlClient("tcp://127.0.0.1:1", Plain(), keys.public)


def test_plain_says_so_once_for_every_socket(caplog: pytest.LogCaptureFixture) -> None:
    keys, _ = pair()
    with caplog.at_level(logging.WARNING):
        guarded, desk = ControlServer(BIND, keys), ControlServer(BIND, Plain())
        line = ControlClient(desk.address, Plain())
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f'no keys server={desk.address} risk="anybody who reaches it may read and write memory"',
        f'no keys client={desk.address} risk="any process that answers there is trusted"',
    ]
    for one in (line, desk, guarded):
        one.close()


def test_a_peer_that_goes_is_noticed_on_both_sides() -> None:
    desk = ControlServer(BIND, Plain())
    line, gone = ControlClient(desk.address, Plain()), ControlClient(desk.address, Plain())
    gone.send(CLAIM)
    ((identity, _),) = until(desk.wait, desk.receive)
    gone.close()
    until(time.sleep, lambda: not desk.send(identity, HELD))
    talk(desk, line)
    desk.close()
    assert isinstance(broken(line), errors.PeerLostError)


@pytest.mark.parametrize("count", [1, 5_000])
@pytest.mark.parametrize("secure", [False, True])
def test_the_last_words_of_a_server_that_is_closed_are_heard(secure: bool, count: int) -> None:
    """Also what it had gathered, and what no line takes at once: here 1 MB."""
    one, other = pair() if secure else (Plain(), Plain())
    desk = ControlServer(BIND, one)
    line = ControlClient(desk.address, other)
    line.send(CLAIM)
    ((identity, _),) = until(desk.wait, desk.receive)
    last = ClaimAnswers(1, 30.0, tuple(Lost(f"{number:0200}", LossReason.UNKNOWN, "") for number in range(count)))
    desk.gather()
    assert desk.send(identity, last)
    desk.close()
    assert isinstance(until(line.wait, line.broken), errors.PeerLostError)
    assert line.receive() == [last]
    line.close()


def test_queues_are_bounded_and_sending_never_blocks() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    line = ControlClient(f"tcp://127.0.0.1:{listener.getsockname()[1]}", Plain())
    assert all(line.send(CLAIM) for _ in range(2 * QUEUE))
    assert line.behind
    line.close()
    listener.close()
    desk = ControlServer(BIND, Plain())
    assert not desk.send(b"nobody", HELD)
    desk.close()


@pytest.mark.parametrize("bind", ["tcp://256.0.0.1:5", "tcp://127.0.0.1", "nonsense", "", "inproc://x", "udp://a:1", 5])
def test_addresses_that_are_none(bind: Any) -> None:
    with pytest.raises(errors.HandshakeError):
        ControlServer(bind, Plain())
    with pytest.raises(errors.HandshakeError, match=r".*"):
        ControlClient(bind if bind != "tcp://256.0.0.1:5" else "tcp://:", Plain())


def test_a_taken_address() -> None:
    keys, _ = pair()
    desk = ControlServer(BIND, keys)
    with pytest.raises(errors.HandshakeError, match="cannot listen"):
        ControlServer(desk.address, keys)
    desk.close()


def test_after_close_nothing_happens() -> None:
    desk = ControlServer(BIND, Plain())
    line = ControlClient(desk.address, Plain())
    for one in (line, desk):
        one.close()
        one.close()
        one.wait(LONG)
        assert one.receive() == []
    assert not desk.send(b"i", HELD)
    assert not line.send(CLAIM)
    assert "is closed" in str(line.broken())


def test_frames_that_are_no_message() -> None:
    desk = ControlServer(BIND, Plain())
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(desk.address)
        for frames in ([b""], [b"", b""], [b"a", b"b", b"c"], [seal(CLAIM), b"x"], [b"x", seal(CLAIM)], [b"x"] * 1000):
            raw.send_multipart(frames)
            ((_, error),) = until(desk.wait, desk.receive)
            assert isinstance(error, errors.CardError)
        raw.send(seal(CLAIM))
        assert until(desk.wait, desk.receive)[0][1] == CLAIM
    desk.close()


@pytest.mark.parametrize("secure", [False, True])
def test_a_message_is_as_many_frames_as_it_takes(secure: bool) -> None:
    keys = pair() if secure else (Plain(), Plain())
    desk = ControlServer(BIND, keys[0])
    line = ControlClient(desk.address, keys[1])
    claim = Claim(1, tuple(f"{number:0200}" for number in range(16_000)))
    assert len(seal(claim)) > 3_000_000
    line.send(claim)
    assert until(desk.wait, desk.receive)[0][1] == claim
    line.close()
    desk.close()


def test_the_release_before_is_told_both_numbers() -> None:
    desk = ControlServer(BIND, Plain())
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(desk.address)
        raw.send(MAGIC + TWO["hello"])
        assert isinstance(until(desk.wait, desk.receive)[0][1], errors.ProtocolError)
        assert raw.poll(int(1000 * LONG))
        refusal = unsealed(raw.recv(), Refusal)
        assert (refusal.code, refusal.again) == ("R027", False)
        assert f"protocol 2, this release {PROTOCOL}" in refusal.message
    desk.close()


def test_a_line_refuses_what_is_no_message() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as raw:
        raw.linger = 0
        raw.bind(BIND)
        line = ControlClient(raw.getsockopt_string(zmq.LAST_ENDPOINT), Plain())
        line.send(Hello("engine", b"", "", "r", 0, "", "", "", "", "", "", None))
        identity, _ = raw.recv_multipart()
        for frames in ([b"nonsense"], [seal(CLAIM)], [b"a", b"b"], [b"", seal(CLAIM)], [MAGIC + FIRST["refusal"]]):
            raw.send_multipart([identity, *frames])
            (error,) = until(line.wait, line.receive)
            assert isinstance(error, errors.CardError)
        assert "lacks the field `nonce`" in str(error)
        line.close()


def test_one_that_speaks_something_else() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(FAILURES):
            listener.accept()[0].close()

    thread = threading.Thread(target=answer)
    thread.start()
    error = broken(ControlClient(f"tcp://127.0.0.1:{listener.getsockname()[1]}", Plain()))
    assert "is it a worker at all?" in str(error)
    thread.join()
    listener.close()


def test_a_message_too_large_ends_the_connection_of_its_sender_only() -> None:
    desk = ControlServer(BIND, Plain())
    line = ControlClient(desk.address, Plain())
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(desk.address)
        raw.send(bytes(FRAME + OVERHEAD + 1))
        raw.send(seal(CLAIM))
        talk(desk, line)
    line.close()
    desk.close()


def test_refused_keys_are_remembered_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    peers = _Peers(lambda: frozenset({b"good"}))
    assert peers.callback("kvplan", b"good")
    assert not any(peers.callback("kvplan", str(number).encode()) for number in [*range(3 * REFUSED), 0])
    assert len(caplog.records) == REFUSED


@pytest.mark.parametrize("secure", [False, True])
def test_nothing_is_left_open(secure: bool) -> None:
    one, other = pair() if secure else (Plain(), Plain())

    def once() -> None:
        desk = ControlServer(BIND, one)
        line = ControlClient(desk.address, other)
        talk(desk, line)
        line.close()
        desk.close()

    once()
    before = descriptors(), threading.active_count()
    for _ in range(10):
        once()
    until(time.sleep, lambda: descriptors() <= before[0])
    assert threading.active_count() == before[1]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_desk_that_nobody_closes_ends_with_its_owner() -> None:
    gc.collect()
    before = threading.active_count()
    for _ in range(3):
        ControlServer(BIND, pair()[0])
    gc.collect()
    assert threading.active_count() == before


def test_a_line_that_nobody_closes_ends_as_one_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the monitor closed first, libzmq's thread would wait forever to notify it and would stop all lines."""
    done = list[str]()

    def recorded(what: str, usual: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any, **named: Any) -> None:
            done.append(what)
            usual(*given, **named)

        return call

    for name in ("disable_monitor", "close"):
        monkeypatch.setattr(zmq.Socket, name, recorded(name, getattr(zmq.Socket, name)))
    gc.collect()
    done.clear()
    desk = ControlServer(BIND, Plain())
    line = ControlClient(desk.address, Plain())
    talk(desk, line)
    del line
    gc.collect()
    assert done == ["disable_monitor", "close", "close"]
    desk.close()


def test_a_server_without_descriptors_is_a_named_error_however_few_there_are() -> None:
    """libzmq ends the process if it gets no descriptors for the threads of a context."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = list[str]()
    for spare in range(2 * SERVER):
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + spare, limit[1]))
        try:
            found.append(problem_of_a_server())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert found[0] == "no socket can be made: Too many open files: raise the limit of open files"
    assert found[-1] == ""
    assert set(found) == {found[0], found[-1]}


def problem_of_a_server() -> str:
    """Why none can be made, empty where one can."""
    try:
        ControlServer(BIND, pair()[0]).close()
    except errors.HandshakeError as error:
        return str(error)
    return ""


def test_the_key_of_a_hello_is_known_when_that_is_heard() -> None:
    """Other messages may be read before it is."""
    (here, secret), (there, other) = (zmq.curve_keypair() for _ in range(2))
    desk = ControlServer(BIND, Keys(here, secret, frozenset({there})))
    line, busy = (ControlClient(desk.address, Keys(there, other, frozenset({here}))) for _ in range(2))
    hello = msgspec.structs.replace(HELLO, run="r", answers=("tcp://127.0.0.1:1",))
    with closing(desk), closing(line), closing(busy):
        for one in (line, busy):
            one.send(Leave("warm"))
            until(desk.wait, lambda: desk.receive(1))
        line.gather()
        for message in (Leave("before"), Leave("before"), hello):
            line.send(message)
        line.flush()
        assert [what for _, what in until(desk.wait, lambda: desk.receive(2))] == [Leave("before")] * 2
        busy.send(Leave("between"))
        time.sleep(0.3)
        ((identity, what), *_) = desk.receive(2)
        assert isinstance(what, Hello)
        desk.lines.meet(identity, hello)
        assert desk.lines.take(lambda peer: peer.run == "r", there) is not None


def test_lines_made_from_here_have_their_turn_while_others_say_much() -> None:
    desk, other = ControlServer(BIND, Plain()), ControlServer(BIND, Plain())
    dialed = ControlClient(other.address, Plain())
    floods = [ControlClient(desk.address, Plain()) for _ in range(10)]
    dialed.share(desk.lines, LinePeer("o", "r", 0, ()))
    dialed.back.append("from a line made from here")
    heard = list[Any]()
    patience = Patience(20)
    while patience.lasts() and "from a line made from here" not in heard:
        for flood in floods:
            for _ in range(32):
                flood.send(Leave("x"))
        heard += [message for _, message in desk.receive()]
    assert len(heard) < 20_000
    assert "from a line made from here" in heard
    for line in (*floods, dialed):
        line.close()
    desk.close()
    other.close()


def test_no_peer_can_choose_the_name_of_a_line_made_from_here() -> None:
    desk, other = ControlServer(BIND, Plain()), ControlServer(BIND, Plain())
    lines = [ControlClient(other.address, Plain()) for _ in range(2)]
    names = set[bytes]()
    for line in lines:
        line.share(desk.lines, LinePeer("o", "r", 0, ()))
        names.add(line.name)
    assert len(names) == 2
    assert all(name.startswith(b"dialed") and name[6:] > (1 << 32).to_bytes(8) for name in names), "8 random bytes"
    for line in lines:
        line.close()
    desk.close()
    other.close()
