import time
from collections.abc import Iterator

import pytest

from kvplan.runtime import InMemory, PrefillWorker, errors, views
from kvplan.runtime.card import MAGIC, Done, Hello, Refusal, checksum, seal
from kvplan.runtime.inmemory import Hub
from kvplan.runtime.server import Contract, expected
from tests.runtime.plans import Model, Shape, plan
from tests.runtime.worlds import memory

WIDE = plan(Shape(1), Shape(2))


def test_the_plan_says_who_tells_whom() -> None:
    assert expected(WIDE, 0) == {0, 1}
    copies = plan(Shape(4), Shape(2))
    assert [sorted(expected(copies, worker)) for worker in range(4)] == [[0, 1]] * 4


def test_a_request_is_finished_when_every_worker_told_once() -> None:
    contract = Contract(WIDE, 0)
    kinds = [contract.tell(Done(WIDE.digest, "r", worker)).kind for worker in (1, 1, 7, -1, 0, 0, 1)]
    assert kinds == ["counted", "duplicate", "unexpected", "unexpected", "finished", "duplicate", "duplicate"]
    assert contract.waiting == {}


def test_requests_are_counted_apart() -> None:
    contract = Contract(WIDE, 0)
    assert [contract.tell(Done("", name, 0)).kind for name in "ab"] == ["counted", "counted"]
    assert contract.tell(Done("", "b", 1)).kind == "finished"
    assert list(contract.waiting) == ["a"]


def test_old_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.server.REMEMBERED", 2)
    contract = Contract(plan(Shape(1), Shape(1)), 0)
    for name in "abc":
        contract.tell(Done("", name, 0))
    assert list(contract.ended) == ["b", "c"]


def test_malformed_and_foreign_notifications_are_events() -> None:
    hub = Hub()
    worker = PrefillWorker(WIDE, 0, views(WIDE.prefill, 0, memory(Shape(1), Model(), 0)), InMemory(hub))
    sender = InMemory(hub)
    peer = sender.add_peer(worker._transport.metadata())
    good = seal(Done(WIDE.digest, "r", 0))
    for message in (b"", good[:-1], seal(Done("0", "r", 0)), good, good, seal(Done(WIDE.digest, "r", 1))):
        sender.notify(peer, message)
    kinds = [event.kind for event in worker.poll()]
    assert kinds == ["malformed", "malformed", "unknown-plan", "counted", "duplicate", "finished"]
    assert (worker.finished(), worker.finished()) == (["r"], [])
    worker.close()


ONE = plan(Shape(1), Shape(1))
NESTED = b"\x85\xa4type\xa4done\xa7request\xa1r\xa4plan\xa1x\xa6worker\x00\xa1z" + b"\x91" * 3500 + b"\x00"
NO_TEXT = b"\x84\xa4type\xa4done\xa7request\xa2\xff\xfe\xa4plan\xa1x\xa6worker\x00"


@pytest.fixture
def worker() -> Iterator[PrefillWorker]:
    made = PrefillWorker(ONE, 0, views(ONE.prefill, 0, memory(Shape(1), Model(), 0)), InMemory(Hub()))
    yield made
    made.close()


def inbox(worker: PrefillWorker) -> list[tuple[str, bytes]]:
    assert isinstance(worker._transport, InMemory)
    return worker._transport._inbox


@pytest.mark.parametrize("body", [NESTED, NO_TEXT])
def test_hostile_notifications_are_events(worker: PrefillWorker, body: bytes) -> None:
    inbox(worker).append(("x", MAGIC + checksum(body) + body))
    assert [event.kind for event in worker.poll()] == ["malformed"]


def test_a_failing_round_does_not_end_the_thread(worker: PrefillWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def fails(reply: object) -> None:
        rounds.append(1)
        raise ValueError("hostile")

    monkeypatch.setattr(worker._desk, "answer", fails)
    worker.start()
    until = time.monotonic() + 10
    while len(rounds) < 3 and time.monotonic() < until:
        time.sleep(0.001)
    assert len(rounds) >= 3


def test_a_request_with_an_empty_name_finishes(worker: PrefillWorker) -> None:
    inbox(worker).append(("x", seal(Done(ONE.digest, "", 0))))
    worker.poll()
    assert worker.finished() == [""]


def test_started_once_and_not_after_close(worker: PrefillWorker) -> None:
    worker.start()
    with pytest.raises(errors.HandleError, match="was started before"):
        worker.start()
    worker.close()
    worker.close()
    for call in (worker.start, worker.poll):
        with pytest.raises(errors.HandleError, match="is closed"):
            call()


def test_peers_wait_for_a_generation_that_all_workers_share(worker: PrefillWorker) -> None:
    engine, card = (Hello(want, ONE.digest, 0) for want in ("engine", "worker"))
    for addresses in ((), ("a", "b")):
        worker.announce(addresses)
        answers = [worker._reply(engine), worker._reply(card)]
        assert [isinstance(answer, Refusal) and answer.again for answer in answers] == [True, True]
    worker.announce(("a", "b"), "g")
    assert [getattr(worker._reply(hello), "generation", None) for hello in (engine, card)] == ["g", "g"]


def test_the_only_worker_needs_no_generation(worker: PrefillWorker) -> None:
    worker.announce(["a"])
    assert not isinstance(worker._reply(Hello("worker", ONE.digest, 0)), Refusal)
