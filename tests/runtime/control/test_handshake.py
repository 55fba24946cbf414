"""Two engines meet, or one of them says by name why not, before the deadline and before a transport hears of a peer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.helpers.control import (  # fmt: skip
    ABSURD,
    BIND,
    CARD,
    OWN,
    PLAN,
    absurd,
    changed,
    close,
    connect,
    engine,
    local,
    pair,
    serving,
)
from tests.runtime.helpers.plans import Shape, plan

from kvplan.runtime import errors
from kvplan.runtime.clock import now
from kvplan.runtime.control.card import PROTOCOL, Hello, Refusal
from kvplan.runtime.control.channel import ControlClient, ControlServer
from kvplan.runtime.control.handshake_server import answer_hello, contacts
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.control.keys import Plain
from kvplan.runtime.plans.catalog import FixedPlans

SHORT = 0.2


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ControlClient]]:
    """Every line that a meeting opens; at the end of a test all are closed."""
    made: list[ControlClient] = []

    closed: set[ControlClient] = set()

    class Kept(ControlClient):
        def __init__(self, *rest: Any) -> None:
            super().__init__(*rest)
            made.append(self)

        def close(self) -> None:
            super().close()
            closed.add(self)

    monkeypatch.setattr("kvplan.runtime.control.handshake.ControlClient", Kept)
    yield made
    assert closed == set(made)


@pytest.mark.parametrize("secure", [False, True])
def test_all_named_workers_are_met(secure: bool) -> None:
    one, other = pair() if secure else (Plain(), Plain())
    with engine(one) as desks:
        met = close(connect(desks[0].address, keys=other))
    assert [card.worker for card, _ in met.workers] == [0, 1] == list(contacts(PLAN, 0))
    assert [line.address for _, line in met.workers] == [desk.address for desk in desks]
    assert met.plan is PLAN
    assert (met.engine.name, met.engine.run, met.engine.generation) == ("prefill-0", "run-p", 3)
    assert met.engine.protocol == PROTOCOL


def test_peers_wait_until_all_workers_are_up() -> None:
    up = threading.Event()

    def alter(worker: int, hello: Hello, card: Any) -> Any:
        if up.is_set():
            return card
        threading.Timer(0.1, up.set).start()
        return answer_hello(hello, local(worker, addresses=()))

    with engine(alter=alter) as desks:
        assert len(close(connect(desks[0].address)).workers) == 2


def test_an_engine_that_never_comes_up() -> None:
    asked: list[Hello] = []

    def alter(worker: int, hello: Hello, card: Any) -> Any:
        asked.append(hello)
        return card

    with (
        engine(alter=alter, addresses=()) as desks,
        pytest.raises(errors.HandshakeError, match="not all up, no change before the deadline"),
    ):
        connect(desks[0].address, deadline=1.0, clock=lambda: 0.99 if len(asked) > 2 else 0.0)
    assert len(asked) == 3


@contextmanager
def silent() -> Iterator[str]:
    desk = ControlServer(BIND, Plain())
    yield desk.address
    desk.close()


@contextmanager
def tcp(*parts: bytes, pause: float = 0.0) -> Iterator[str]:
    """Somebody who accepts a connection and says so much, and no more."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def speak() -> None:
        with listener.accept()[0] as peer:
            with suppress(OSError):
                for part in parts:
                    peer.send(part)
                    over.wait(pause)
            over.wait()

    thread = threading.Thread(target=speak)
    thread.start()
    yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    over.set()
    thread.join()
    listener.close()


# The greeting of ZeroMQ, and a message of which half is there.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
READY = b"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"


@pytest.mark.parametrize(
    "peer",
    [
        silent,
        lambda: tcp(),
        lambda: tcp(GREETING[:20]),
        lambda: tcp(GREETING, READY, b"\x00\x7fkvpl"),
        lambda: tcp(*(bytes([one]) for one in GREETING + READY), pause=0.02),
        lambda: tcp(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ],
    ids=["silent", "accepts", "half a greeting", "half a message", "trickles", "another protocol"],
)
def test_one_that_never_answers_meets_the_deadline(peer: Any) -> None:
    with peer() as address, pytest.raises(errors.HandshakeError, match=r"before the deadline|is it a worker at all"):
        connect(address, deadline=now() + SHORT)


def test_nobody_there() -> None:
    desk = ControlServer(BIND, Plain())
    desk.close()
    with pytest.raises(errors.HandshakeError, match="did not answer before the deadline"):
        connect(desk.address, deadline=now() + SHORT)


@pytest.mark.parametrize("deadline", [float("nan"), float("inf")])
def test_deadlines_that_are_none(deadline: float) -> None:
    with pytest.raises(errors.HandshakeError, match="a deadline in"):
        connect("tcp://127.0.0.1:1", deadline=deadline)


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1", "inproc://a"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(errors.HandshakeError, match=address):
        connect(address)


@pytest.mark.parametrize("wrong", ["client", "server"])
def test_a_wrong_key_is_told_before_the_deadline(wrong: str) -> None:
    (one, other), (stranger, _) = pair(), pair()
    ours, theirs = (stranger, one.public) if wrong == "client" else (other, stranger.public)
    with engine(one) as desks, pytest.raises(errors.KeysError) as caught:
        connect(desks[0].address, keys=ours, server_key=theirs)
    assert theirs.decode() in str(caught.value)
    assert ours.public.decode() in str(caught.value)


def test_a_worker_that_lets_nobody_in_fails_the_whole_meeting(lines: list[ControlClient]) -> None:
    (one, other), (stranger, _) = pair(), pair()
    desk = ControlServer(BIND, stranger)
    with engine(one) as desks, serving(desk, lambda hello: None):
        addresses = desks[0].address, desk.address
        with engine(one, addresses=addresses) as first, pytest.raises(errors.KeysError):
            connect(first[0].address, keys=other)
    assert len(lines) == 3


def test_an_engine_does_not_meet_itself() -> None:
    me = Identity("same", "one-run")
    with engine(identity=me) as desks:
        close(connect(desks[0].address, identity=Identity("same", "another")))
        with pytest.raises(errors.OwnCardError, match="is this very engine, run one-run"):
            connect(desks[0].address, identity=me)


def test_ones_own_card_from_somebody_else() -> None:
    with (
        engine(alter=lambda worker, hello, card: changed(card, run=hello.run)) as desks,
        pytest.raises(errors.OwnCardError),
    ):
        connect(desks[0].address)


UNLIKE = [
    ({"revision": "a"}, {"revision": "b"}, "has revision '{}', ours is '{}':"),
    ({"scales": "1"}, {"scales": "2"}, "has scales '{}', ours is '{}':"),
    ({"revision": "a"}, {"revision": ""}, "has revision '{}', ours is '{}'; {} gives none"),
    ({"scales": ""}, {"scales": "2"}, "has scales '{}', ours is '{}'; {} gives none"),
]


@pytest.mark.parametrize(("mine", "theirs", "text"), UNLIKE)
def test_decode_refuses_an_unlike_engine(mine: dict, theirs: dict, text: str) -> None:
    """Though prefill does not care."""
    ((_, ours), (_, other)) = *mine.items(), *theirs.items()
    none = "this side" if not ours else "prefill engine 'prefill-0'"
    with (
        engine(alter=lambda worker, hello, card: changed(CARD, nonce=hello.nonce, **theirs)) as desks,
        pytest.raises(errors.UnlikeError) as caught,
    ):
        connect(desks[0].address, identity=Identity("decode-0", "run-d", **mine))
    assert str(caught.value).startswith("prefill engine 'prefill-0'")
    assert text.format(other, ours, none) in str(caught.value)


def test_a_pair_without_a_plan() -> None:
    with engine() as desks, pytest.raises(errors.PlanMissingError, match="no plan from side"):
        connect(desks[0].address, plans=FixedPlans(()))


@pytest.mark.parametrize(
    "other",
    [replace(PLAN, model_digest="x"), plan(Shape(2, kernel=8), Shape(1)), plan(Shape(2), Shape(1, kernel=8))],
    ids=["model", "prefill", "decode"],
)
def test_plans_for_another_pair(other: Any) -> None:
    class Wrong:
        def find(self, *asked: Any) -> Any:
            return other

    with (
        engine() as desks,
        pytest.raises(errors.DigestError, match="compile both sides from one layout"),
    ):
        connect(desks[0].address, plans=Wrong())


def test_a_worker_the_plan_does_not_have() -> None:
    with engine() as desks, pytest.raises(errors.HandshakeError, match="decode worker 1 is none of the plan's 1"):
        connect(desks[0].address, worker=1)


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_workers(count: int) -> None:
    with (
        engine(addresses=("tcp://127.0.0.1:1",) * count) as desks,
        pytest.raises(errors.CardError, match=f"{count} addresses, the plan 2 workers: announce all"),
    ):
        connect(desks[0].address)


@pytest.mark.parametrize("address", [
    "tcp://0.0.0.0:5", "tcp://*:5", "tcp://[::]:5", "tcp://[0:0::0]:5", "tcp://[::ffff:0.0.0.0]:5", "ipc:///tmp/a",
    "inproc://a", "x",
])  # fmt: skip
def test_addresses_that_lead_nowhere(address: str, lines: list[ControlClient]) -> None:
    with engine(addresses=(address,) * 2) as desks, pytest.raises(errors.HandshakeError, match="announce where"):
        connect(desks[0].address)
    assert len(lines) == 1


@pytest.mark.parametrize("want", ["engine", "worker"])
def test_an_answer_to_another_question_is_refused(want: str) -> None:
    def alter(worker: int, hello: Hello, card: Any) -> Any:
        return changed(card, nonce=b"recorded before") if hello.want == want else card

    with engine(alter=alter) as desks, pytest.raises(errors.ReplayError, match=b"recorded before".hex()):
        connect(desks[0].address)


def test_recorded_cards_are_refused() -> None:
    recorded: list = []

    def alter(worker: int, hello: Hello, card: Any) -> Any:
        recorded.append(card)
        return card

    with engine(alter=alter) as desks:
        close(connect(desks[0].address))
    with engine(alter=lambda worker, hello, card: recorded[0]) as desks, pytest.raises(errors.ReplayError):
        connect(desks[0].address)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"worker": 1}, errors.CardError, "worker 0 is meant, worker 1 shows its card"),
        ({"plan": "x"}, errors.DigestError, "plan digest 'x', ours is"),
        ({"run": "h"}, errors.StalePeerError, "is of run 'h', its engine of 'run-p'"),
        ({"metadata": b"p"}, errors.CardError, "metadata of worker 0 is truncated or corrupt"),
        ({"metadata": b""}, errors.CardError, "metadata of worker 0 is truncated or corrupt"),
    ],
)
def test_worker_cards_that_differ(change: dict, error: type, text: str) -> None:
    def alter(worker: int, hello: Hello, card: Any) -> Any:
        return changed(card, **change) if hello.want == "worker" else card

    with engine(alter=alter) as desks, pytest.raises(error, match=text):
        connect(desks[0].address)


@pytest.mark.parametrize(("column", "value"), ABSURD)
def test_absurd_numbers_of_a_worker(column: str, value: Any) -> None:
    def alter(worker: int, hello: Hello, card: Any) -> Any:
        return absurd(card, column, value) if hello.want == "worker" and worker else card

    with engine(alter=alter) as desks, pytest.raises((errors.RegisterError, errors.AddressError, errors.CardError)):
        connect(desks[0].address)


@pytest.mark.parametrize("want", ["engine", "worker"])
def test_an_engine_or_a_worker_of_another_protocol(want: str) -> None:
    def alter(worker: int, hello: Any, card: Any) -> Any:
        return changed(card, protocol=2) if hello.want == want else card

    with (
        engine(alter=alter) as desks,
        pytest.raises(errors.ProtocolError, match=f"speaks protocol 2, this release {PROTOCOL}: update that side"),
    ):
        connect(desks[0].address)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("R004", errors.DigestError),
        ("R046", errors.LeaseError),
        ("R000", errors.KvplanError),
        ("X", errors.HandshakeError),
    ],
)
def test_a_refusal_carries_its_error_over(code: str, kind: type) -> None:
    with (
        engine(alter=lambda worker, hello, card: Refusal(code, "go\n\x1b[2J away", False, hello.nonce)) as desks,
        pytest.raises(errors.KvplanError, match=r"refuses: go  \[2J away$") as caught,
    ):
        connect(desks[0].address)
    assert type(caught.value) is kind


def test_a_worker_that_goes_while_it_is_met() -> None:
    desk = ControlServer(BIND, Plain())
    answered = threading.Event()

    def alter(worker: int, hello: Hello, card: Any) -> Any:
        answered.set()
        return card

    def leave() -> None:
        while not desk.receive():
            desk.wait(0.05)
        desk.close()

    thread = threading.Thread(target=leave)
    thread.start()
    with (
        engine(alter=alter, addresses=(desk.address,) * 2) as desks,
        pytest.raises(errors.PeerLostError, match="is lost: connect again"),
    ):
        connect(desks[0].address)
    thread.join()
    assert answered.is_set()


def test_one_that_is_pushed_to_shows_its_own_card() -> None:
    seen: list[Hello] = []

    def alter(worker: int, hello: Hello, card: Any) -> Any:
        seen.append(hello)
        return card

    with engine(alter=alter) as desks:
        close(connect(desks[0].address, card_for=lambda plan: OWN))
    first, *others = seen
    assert (first.want, first.plan, first.card) == ("engine", "", None)
    assert [hello.card for hello in others] == [changed(OWN, nonce=hello.nonce) for hello in others]
    assert {hello.plan for hello in others} == {PLAN.digest}
