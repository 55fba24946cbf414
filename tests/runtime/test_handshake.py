"""What peers show each other is refused, by name, before a transport hears of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kvplan.runtime import InMemory, PrefillWorker, Puller, errors, views
from kvplan.runtime.card import (
    MAGIC,
    Done,
    EngineCard,
    Hello,
    Refusal,
    WorkerCard,
    checksum,
    describe,
    geometry,
    seal,
    unseal,
)
from kvplan.runtime.digest import sealed
from kvplan.runtime.handshake import Desk, _reply, meet, named
from kvplan.runtime.inmemory import Hub
from kvplan.runtime.peers import Peers
from tests.runtime.plans import Model, Shape, plan
from tests.runtime.worlds import memory

PLAN = plan(Shape(2), Shape(1))


@pytest.fixture
def workers() -> Iterator[list[PrefillWorker]]:
    hub = Hub()
    pools = [views(PLAN.prefill, number, memory(Shape(2), Model(), number)) for number in range(2)]
    made = [PrefillWorker(PLAN, n, pool, InMemory(hub), generation="g") for n, pool in enumerate(pools)]
    for worker in made:
        worker.start()
    yield made
    for worker in made:
        worker.close()


def up(workers: list[PrefillWorker]) -> str:
    for worker in workers:
        worker.announce([one.address for one in workers])
    return workers[0].address


def test_cards_survive() -> None:
    done = Done("plan", "request", 3)
    assert unseal(seal(done), Done) == done


@pytest.mark.parametrize("cut", [0, 5, 8, 20, -1])
def test_truncated(cut: int) -> None:
    with pytest.raises(errors.CardError):
        unseal(seal(Done("plan", "request", 3))[:cut], Done)


def test_every_flipped_bit_is_seen() -> None:
    data = seal(Done("plan", "request", 3))
    for place in range(len(data)):
        with pytest.raises(errors.CardError):
            unseal(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :], Done)


def test_another_message_and_one_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.CardError, match="is not a"):
        unseal(seal(Hello("engine", "p", 1)), Done)
    data = seal(Done("p", "r" * 100, 1))
    monkeypatch.setattr("kvplan.runtime.card.LARGEST", 50)
    with pytest.raises(errors.CardError, match="above 50"):
        unseal(data, Done)
    with pytest.raises(errors.CardError, match="above 50"):
        seal(Done("p", "r" * 100, 1))


def test_all_named_workers_are_met(workers: list[PrefillWorker]) -> None:
    met = meet(PLAN, 0, up(workers), 5)
    assert [card.worker for card in met.workers] == [0, 1] == list(named(PLAN, 0))
    assert (met.engine.key, met.engine.generation) == ("p", "g")


def test_peers_wait_until_all_workers_are_up(workers: list[PrefillWorker]) -> None:
    threading.Timer(0.1, up, [workers]).start()
    assert len(meet(PLAN, 0, workers[0].address, 5).workers) == 2


def test_an_engine_that_never_comes_up_meets_the_deadline(workers: list[PrefillWorker]) -> None:
    with pytest.raises(errors.HandshakeError, match="no change before the deadline"):
        meet(PLAN, 0, workers[0].address, 0.1)


def test_no_answer_meets_the_deadline() -> None:
    desk = Desk("tcp://127.0.0.1:*")
    with pytest.raises(errors.HandshakeError, match="did not answer before the deadline"):
        meet(PLAN, 0, desk.address, 0.05)
    desk.close()


def test_an_address_that_is_none() -> None:
    with pytest.raises(errors.HandshakeError, match="nonsense"):
        meet(PLAN, 0, "nonsense", 1)


@pytest.mark.parametrize("other", [plan(Shape(2), Shape(1, kernel=8)), replace(PLAN, digest="0" * 32)])
def test_another_plan_is_refused(workers: list[PrefillWorker], other: Any) -> None:
    with pytest.raises(errors.DigestError, match="is not served here"):
        meet(other, 0, up(workers), 5)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model": "x"}, errors.DigestError),
        ({"side": "x"}, errors.DigestError),
        ({"plan": "x"}, errors.DigestError),
        ({"addresses": ("a",)}, errors.CardError),
    ],
)
def test_engine_cards_that_differ(
    workers: list[PrefillWorker], change: dict, error: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(workers)
    card = msgspec.structs.replace(workers[0]._reply(Hello("engine", PLAN.digest, 0)), **change)
    monkeypatch.setattr(workers[0], "_reply", lambda hello: card)
    with pytest.raises(error):
        meet(PLAN, 0, workers[0].address, 5)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"worker": 1}, errors.CardError, "worker 1 answered"),
        ({"plan": "x"}, errors.DigestError, "plan digest x"),
        ({"generation": "h"}, errors.CardError, "another generation"),
        ({"metadata": b"p"}, errors.CardError, "metadata of worker 0 is truncated or corrupt"),
    ],
)
def test_worker_cards_that_differ(
    workers: list[PrefillWorker], change: dict, error: type, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, real = up(workers), workers[0]._reply
    monkeypatch.setattr(
        workers[0], "_reply", lambda hello: altered(real(hello), change) if hello.want == "worker" else real(hello)
    )
    with pytest.raises(error, match=text):
        meet(PLAN, 0, address, 5)


def altered(card: Any, change: dict) -> WorkerCard:
    return msgspec.structs.replace(card, **change)


@pytest.mark.parametrize(
    ("column", "value"),
    [("base", -1), ("base", 0), ("base", 1 << 62), ("base", 1 << 63), ("stride", 33), ("page", 31), ("count", 41),
     ("count", 0), ("count", 1 << 60), ("region", 9), ("region", -1), ("device", 1), ("base", "next")],
)  # fmt: skip
def test_absurd_numbers_are_refused_before_the_transport_hears_of_them(
    workers: list[PrefillWorker], column: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, real = up(workers), workers[1]._reply
    puller = Puller(PLAN, 0, views(PLAN.decode, 0, memory(Shape(1), Model(), 0)), InMemory(Hub()))
    monkeypatch.setattr(puller._transport, "add_peer", lambda metadata: pytest.fail("the transport was asked"))

    def reply(hello: Hello) -> object:
        card = real(hello)
        if hello.want != "worker":
            return card
        numbers = getattr(card, column)
        return altered(card, {column: (numbers[1] if value == "next" else value, *numbers[1:])})

    monkeypatch.setattr(workers[1], "_reply", reply)
    with pytest.raises((errors.RegisterError, errors.AddressError, errors.CardError)):
        puller.connect(address, 5)
    assert puller.connected() == ()


def test_a_desk_answers_nonsense_with_a_refusal() -> None:
    import zmq

    desk = Desk("tcp://127.0.0.1:*")
    socket: zmq.Socket[bytes]
    with zmq.Context.instance().socket(zmq.REQ) as socket:
        socket.connect(desk.address)
        socket.send(b"nonsense")
        while not socket.poll(1):
            desk.answer(lambda hello: pytest.fail("asked"))
        assert isinstance(unseal(socket.recv(), Refusal), Refusal)
    desk.close()


def test_a_taken_address() -> None:
    desk = Desk("tcp://127.0.0.1:*")
    with pytest.raises(errors.HandshakeError, match="cannot listen"):
        Desk(desk.address)
    desk.close()


def test_geometry_travels() -> None:
    pool = views(PLAN.prefill, 0, memory(Shape(2), Model(), 0))
    card = describe(0, PLAN, "g", pool.geometry, b"m")
    assert geometry(unseal(seal(card), WorkerCard)).base.tolist() == pool.geometry.base.tolist()


def test_the_pool_is_that_of_the_worker_and_writable() -> None:
    arrays = memory(Shape(1), Model(), 0)
    pool = views(PLAN.decode, 0, arrays)
    with pytest.raises(errors.RegisterError, match="not that of decode worker"):
        Puller(sealed(plan(Shape(2), Shape(1, kernel=8))), 0, pool, InMemory(Hub()))
    with pytest.raises(errors.RegisterError, match="not that of prefill worker"):
        PrefillWorker(PLAN, 1, pool, InMemory(Hub()))
    arrays["kv.3"].flags.writeable = False
    with pytest.raises(errors.RegisterError, match="read-only"):
        Puller(PLAN, 0, views(PLAN.decode, 0, arrays), InMemory(Hub()))


@pytest.mark.parametrize(
    "body",
    [
        b"\x85\xa4type\xa5hello\xa4want\xa6engine\xa6worker\x00\xa4plan\xa1x\xa1z" + b"\x91" * 3500 + b"\x00",
        b"\x84\xa4type\xa5hello\xa4want\xa6engine\xa6worker\x00\xa4plan\xa2\xff\xfe",
    ],
)
def test_hostile_messages_are_card_errors(body: bytes) -> None:
    with pytest.raises(errors.CardError, match="is not a"):
        unseal(MAGIC + checksum(body) + body, Hello)


def test_a_card_too_large_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    hello = seal(Hello("engine", "p", 1))
    monkeypatch.setattr("kvplan.runtime.card.LARGEST", 200)
    card = EngineCard("m", "s", "p", "k" * 400, (), "g")
    answer = unseal(_reply(hello, lambda hello: card), Refusal)
    assert (answer.code, answer.again) == (errors.CardError.code, False)


def test_an_unchanged_peer_is_not_prepared_again(workers: list[PrefillWorker], monkeypatch: pytest.MonkeyPatch) -> None:
    met = meet(PLAN, 0, up(workers), 5)
    assert isinstance(workers[0]._transport, InMemory)
    pool, reader = views(PLAN.decode, 0, memory(Shape(1), Model(), 0)), InMemory(workers[0]._transport.hub)
    reader.register(pool.geometry.regions, "DRAM")
    peers = Peers(PLAN, 0, pool.geometry, reader)
    peers.add(met)
    before = dict(peers.sources)
    monkeypatch.setattr(reader, "prepare", lambda *rest: pytest.fail("prepared again"))
    peers.add(met)
    assert all(peers.sources[worker] is source for worker, source in before.items())
    assert not peers.keeps(msgspec.structs.replace(met.workers[0], generation="h"))
    peers.retire(0)
    assert [peers.keeps(card) for card in met.workers] == [False, True]
