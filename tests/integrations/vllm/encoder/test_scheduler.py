"""The scheduler's decisions on items, with transfers that end when the test ends them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.integrations.vllm.encoder.items import ABORTED, FakeRequest, request

from kvplan.integrations.vllm.encoder.metadata import RemoteItem
from kvplan.integrations.vllm.encoder.pool import PooledItem, RowPool
from kvplan.integrations.vllm.encoder.scheduler import EncoderScheduler, PoolOwner

PATIENCE = 10.0


@dataclass
class FakeTransfers:
    """Transfers that end when `end` is called."""

    under_way: dict[str, PooledItem] = field(default_factory=dict)
    over: list[tuple[PooledItem, Exception | None]] = field(default_factory=list)
    let: list[str] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    refuses: bool = False
    waited: int = 0

    @property
    def busy(self) -> bool:
        return bool(self.under_way)

    def hold(self, name: str, item: PooledItem) -> bool:
        self.holds += [] if self.refuses else [name]
        return not self.refuses

    def released(self) -> list[str]:
        free, self.free = self.free, []
        return free

    def fetch(self, item: PooledItem, remote: RemoteItem) -> None:
        item.arriving = True
        self.under_way[item.hash] = item

    def let_go(self, remote: RemoteItem) -> None:
        self.let.append(remote.request)

    def arrived(self) -> list[tuple[PooledItem, Exception | None]]:
        over, self.over = self.over, []
        return over

    def wait(self, seconds: float) -> None:
        self.waited += 1

    def end(self, hash: str, error: Exception | None = None) -> None:
        item = self.under_way.pop(hash)
        item.arriving = False
        self.over.append((item, error))


class Scene:
    """A scheduler, its transfers, and workers that do all their orders on command."""

    def __init__(self, blocks: int = 16, **owner: Any) -> None:
        self.transfers, self.time, self.done, self.tickets = FakeTransfers(), 0.0, 0, dict[int, int]()
        self.pool = RowPool(blocks, 4, lambda step: step <= self.done)
        who = PoolOwner("engine", "127.0.0.1", 7500, **owner)
        self.scheduler = EncoderScheduler(
            who, self.pool, self.transfers, lambda block, ticket: self.tickets.get(block) == ticket, lambda: self.time
        )
        self.scheduler.patience = PATIENCE
        self.scheduler.encodable = lambda feature: feature.data is not None

    def step(self, *new: FakeRequest, tokens: int = 1) -> Any:
        return self.scheduler.orders([each.new for each in new], tokens)

    def save(self, orders: Any) -> None:
        """Workers do a step, and have encoded all that it asks for."""
        self.tickets |= {place.first: place.ticket for place in orders.saves.values()}
        self.done = orders.step

    def available(self, one: FakeRequest, computed: int = 0) -> bool:
        return self.scheduler.available(one, computed)


def remote(name: str, **items: int) -> dict[str, Any]:
    return {hash: RemoteItem("encode", f"{name}#{hash}", "10.0.0.1", 7500, n, 0).params() for hash, n in items.items()}


def wanting(name: str, data: str | None = "pixels", **items: int) -> FakeRequest:
    return request(name, items, remote(name, **items), data)


def test_a_request_waits_until_all_of_its_items_are_there() -> None:
    scene, one = Scene(), wanting("r", a=5, b=3)
    assert not scene.available(one)
    scene.transfers.end("b")
    assert not scene.available(one)
    assert not scene.scheduler.has("a")
    scene.transfers.end("a")
    assert scene.available(one)
    for feature in one.mm_features:
        assert scene.scheduler.has(feature.identifier)
        scene.scheduler.allocated(feature)
    orders = scene.step(one)
    assert {hash: place.rows for hash, place in orders.loads.items()} == {"a": 5, "b": 3}
    assert scene.step().loads == {}, "each is loaded once"


def test_only_what_is_still_to_be_computed_is_fetched() -> None:
    scene, one = Scene(), wanting("r", a=5, b=3)
    assert not scene.available(one, computed=5)
    assert set(scene.transfers.under_way) == {"b"}
    scene.scheduler.finished(one)
    assert scene.transfers.let == ["r#a"]


def test_two_requests_that_have_half_of_the_room_each_do_not_wait_for_each_other() -> None:
    scene = Scene(blocks=3)
    first, second = wanting("r", a=4, b=4), wanting("s", c=4, d=4)
    assert not scene.available(first)
    assert not scene.available(second)
    assert set(scene.transfers.under_way) == {"a", "b"}
    for hash in "ab":
        scene.transfers.end(hash)
    assert scene.available(first)
    for feature in first.mm_features:
        scene.scheduler.passed(first, feature)
    assert not scene.available(second)
    assert set(scene.transfers.under_way) == {"c", "d"}


def test_nobody_waits_for_room_that_there_never_is() -> None:
    scene = Scene(blocks=2)
    assert scene.available(wanting("r", a=12)), "it is encoded here"
    assert scene.transfers.let == ["r#a"]


def test_nobody_waits_for_room_longer_than_told() -> None:
    scene = Scene(blocks=1)
    scene.available(wanting("r", a=4))
    late = wanting("s", b=4)
    assert not scene.available(late)
    scene.time = PATIENCE
    assert scene.available(late)
    assert not scene.scheduler.has("b")
    assert scene.transfers.let == ["s#b"]


def test_what_cannot_be_encoded_here_fails() -> None:
    scene, one = Scene(), wanting("r", data=None, a=4)
    assert not scene.available(one)
    scene.transfers.end("a", ValueError("gone"))
    assert not scene.available(one)
    assert scene.scheduler.unavailable() == {"r"}
    assert scene.scheduler.unavailable() == set(), "each is told once"


def test_what_failed_for_one_request_is_fetched_by_what_another_says() -> None:
    scene, first, second = Scene(), wanting("r", a=4), wanting("s", a=4)
    scene.available(first)
    assert not scene.available(second)
    scene.transfers.end("a", ValueError("gone"))
    assert scene.available(first), "it is encoded here"
    assert not scene.available(second)
    assert set(scene.transfers.under_way) == {"a"}


def test_rows_of_another_number_are_not_fetched() -> None:
    scene = Scene()
    one = replace(request("r", {"a": 4}), ec_transfer_params=remote("r", a=5))
    assert scene.available(one)
    assert not scene.transfers.under_way


def test_an_item_is_never_taken_for_another_of_its_name() -> None:
    scene, first, second = Scene(saves=False), wanting("r", a=4), wanting("s", a=8)
    scene.available(first)
    scene.transfers.end("a")
    assert not scene.available(second), "the pool has rows of the first, which needs them"
    assert scene.scheduler.unavailable() == {"s"}
    scene.scheduler.finished(first)
    assert not scene.available(second)
    assert scene.transfers.under_way["a"].rows == 8, "nobody needs the first any more"


def test_a_host_that_is_refused_is_not_asked() -> None:
    scene = Scene()
    scene.scheduler.refuses = lambda host: f"{host} is none of peers"
    assert scene.available(wanting("r", a=4))
    assert not scene.transfers.under_way


@pytest.mark.parametrize("params", [None, "text", {"a": None}, {"a": {"metadata": {}}}])
def test_what_nobody_holds_is_encoded_here(params: Any) -> None:
    scene = Scene()
    assert scene.available(replace(request("r", {"a": 4}), ec_transfer_params=params))
    assert not scene.scheduler.has("a")


def test_a_step_without_tokens_orders_nothing_and_rests() -> None:
    scene, one = Scene(), wanting("r", a=4)
    assert scene.step(tokens=0).step == 0
    assert scene.transfers.waited == 0
    scene.available(one)
    assert scene.step(tokens=0).step == 0
    assert scene.transfers.waited == 1


def test_what_a_step_loads_stays_until_workers_have_done_it() -> None:
    scene, one = Scene(blocks=1), wanting("r", a=4)
    scene.available(one)
    scene.transfers.end("a")
    scene.available(one)
    scene.scheduler.allocated(one.mm_features[0])
    orders = scene.step(one)
    scene.scheduler.finished(replace(one, status=ABORTED))
    other = wanting("s", b=4)
    assert not scene.available(other)
    assert not scene.transfers.under_way
    scene.done = orders.step
    assert not scene.available(other)
    assert set(scene.transfers.under_way) == {"b"}


def test_items_are_saved_by_each_step_until_a_worker_has() -> None:
    scene, one = Scene(), request("r", {"a": 4})
    first = scene.step(one)
    again = scene.step()
    assert list(first.saves) == list(again.saves) == ["a"]
    scene.save(again)
    assert scene.step().saves == {}
    assert scene.scheduler.finished(one)["a"]["remote_num_rows"] == 4


def test_what_no_worker_has_saved_is_not_held() -> None:
    scene, one = Scene(), request("r", {"a": 4})
    scene.step(one)
    assert scene.scheduler.finished(one) == {}
    assert scene.transfers.holds == []


def test_an_item_of_an_aborted_request_may_be_saved_while_its_step_is_under_way() -> None:
    """Its blocks go to other items only when no worker can write to them."""
    scene, one, other = Scene(blocks=1), request("r", {"a": 4}), request("s", {"b": 4})
    orders = scene.step(one)
    scene.scheduler.finished(replace(one, status=ABORTED))
    assert scene.step(other).saves == {}, "no room"
    scene.done = orders.step + 1
    later = request("t", {"b": 4})
    assert list(scene.step(later).saves) == ["b"]


def test_an_item_is_held_once_for_each_request_and_pinned_as_long() -> None:
    scene = Scene(blocks=1)
    first, second = request("r", {"a": 2, "b": 2}), request("s", {"a": 2})
    second = replace(second, mm_features=[*second.mm_features, *second.mm_features])
    scene.save(scene.step(first, second))
    told = scene.scheduler.finished(first), scene.scheduler.finished(second)
    assert [list(items) for items in told] == [["a"], ["a"]], "no room for b"
    assert len(set(scene.transfers.holds)) == 2
    scene.transfers.free = scene.transfers.holds[:1]
    assert scene.step(request("t", {"c": 4})).saves == {}
    scene.transfers.free = scene.transfers.holds[1:]
    assert list(scene.step(request("u", {"c": 4})).saves) == ["c"]


def test_what_the_runtime_does_not_hold_is_not_told() -> None:
    scene, one = Scene(), request("r", {"a": 4})
    scene.save(scene.step(one))
    scene.transfers.refuses = True
    assert scene.scheduler.finished(one) == {}


@pytest.mark.parametrize(
    ("owner", "one"), [({"loads": False}, wanting("r", a=4)), ({"saves": False}, wanting("r", a=4))]
)
def test_an_engine_does_what_its_role_is(owner: dict[str, bool], one: FakeRequest) -> None:
    scene = Scene(**owner)
    assert scene.available(one) == (not owner.get("loads", True))
    assert bool(scene.step(one).saves) == owner.get("saves", True)
