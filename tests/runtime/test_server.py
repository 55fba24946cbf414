import pytest

from kvplan.runtime import InMemory, PrefillWorker, views
from kvplan.runtime.card import Done, seal
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
