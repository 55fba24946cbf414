"""Items between an engine that encodes and engines that prefill, over NIXL: every byte, leases, sums and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.demo.test_demo import needs_nixl
from tests.integrations.vllm.encoder.items import (
    ABORTED,
    DIM,
    FACTS,
    LEVELS,
    Engine,
    FakeRequest,
    content,
    engines,
    request,
)
from tests.runtime.helpers.waiting import until

from kvplan.runtime.checksum.background import summed

pytestmark = needs_nixl
ITEMS = {"a": 3, "b": 64, "c": 100}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile plans in one folder, once for all tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("plans")))
        yield


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    with engines(tmp_path, "encode", "prefill") as (encode, prefill):
        yield encode, prefill


def right(loaded: dict[str, torch.Tensor], items: dict[str, int]) -> bool:
    return list(loaded) == list(items) and all(
        torch.equal(loaded[hash], content(hash, rows)) for hash, rows in items.items()
    )


def encoded_here(engine: Engine, one: FakeRequest) -> bool:
    """Whether a request waits for nothing any more, and the engine encodes its items itself."""
    until(lambda: engine.idle() and engine.scheduler.available(one, 0))
    return not any(engine.scheduler.has(each.identifier) for each in one.mm_features)


def test_items_arrive_as_they_were_encoded(pair: tuple[Engine, Engine]) -> None:
    encode, prefill = pair
    (params,) = encode.encode(request("r", ITEMS))
    assert right(prefill.take(request("r", ITEMS, params)), ITEMS)
    until(lambda: not encode.held())


def test_no_step_is_taken_for_done_before_it_is(pair: tuple[Engine, Engine]) -> None:
    """The first one, too: workers that have done nothing share the memory already."""
    encode, _ = pair
    for name in "ab":
        orders = encode.scheduler.orders([request(name, {name: 3}).new], 1)
        assert not encode.rows.done(orders.step, [0])
        encode.step(orders, {})
        assert encode.rows.done(orders.step, [0])


def test_an_engine_that_does_both_loads_and_encodes(tmp_path: Path) -> None:
    with engines(tmp_path, "both", "both") as (one, other):
        (params,) = one.encode(request("r", {"a": 3}))
        (back,) = other.encode(request("s", {"b": 5}))
        assert right(other.take(request("r", {"a": 3}, params)), {"a": 3})
        assert right(one.take(request("s", {"b": 5}, back)), {"b": 5})


def test_an_item_of_two_requests_is_fetched_once(pair: tuple[Engine, Engine]) -> None:
    encode, prefill = pair
    told = encode.encode(request("r", ITEMS), request("s", ITEMS))
    first, second = (request(name, ITEMS, params) for name, params in zip("rs", told, strict=True))
    assert not prefill.scheduler.available(first, 0)
    assert not prefill.scheduler.available(second, 0)
    assert all(len(item.users) == 2 for item in prefill.scheduler.pool)
    assert right(prefill.take(first), ITEMS)
    assert right(prefill.take(second), ITEMS)
    until(lambda: not encode.held())


def test_an_item_that_the_pool_has_is_not_fetched_again(pair: tuple[Engine, Engine]) -> None:
    encode, prefill = pair
    (params,) = encode.encode(request("r", ITEMS))
    prefill.take(request("r", ITEMS, params))
    (params,) = encode.encode(request("s", ITEMS))
    later = request("s", ITEMS, params)
    assert prefill.scheduler.available(later, 0), "nothing is waited for"
    assert right(prefill.take(later), ITEMS)
    until(lambda: not encode.held())


def test_what_a_request_does_not_need_is_let_go(pair: tuple[Engine, Engine]) -> None:
    """Keys and values of its items are there already, or the request ends before it needs them."""
    encode, prefill = pair
    (params,) = encode.encode(request("r", ITEMS))
    one = request("r", ITEMS, params)
    assert prefill.scheduler.available(one, sum(ITEMS.values()))
    prefill.scheduler.finished(one)
    until(lambda: not encode.held())


def test_a_row_that_is_not_as_it_was_sent_is_found(
    pair: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, prefill = pair
    (params,) = encode.encode(request("r", {"a": 100}))

    def changed(*given: Any) -> Any:
        prefill.rows.rows[50 * DIM * LEVELS * 4] ^= 1
        return summed(*given)

    monkeypatch.setattr("kvplan.runtime.decode.driver.summed", changed)
    assert encoded_here(prefill, request("r", {"a": 100}, params))


def test_an_encode_engine_that_cannot_be_told_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with engines(tmp_path, "encode", "prefill", connect=0.2) as (encode, prefill):
        (params,) = encode.encode(request("r", {"a": 3}))
        wrong = {"a": {**params["a"], "remote_port": 9}}
        one = request("r", {"a": 3}, wrong)
        assert prefill.scheduler.available(one, 3)
        prefill.scheduler.finished(one)
        until(lambda: "encode engine not told" in caplog.text)


def test_a_hold_that_nobody_comes_for_ends(tmp_path: Path) -> None:
    with engines(tmp_path, "encode", lease_s=3) as (encode,):
        encode.encode(request("r", ITEMS))
        assert encode.held()
        until(lambda: not encode.held())


def test_an_item_that_is_held_no_more_is_encoded_again(tmp_path: Path) -> None:
    with engines(tmp_path, "encode", "prefill", lease_s=3, hold_s=0.3) as (encode, prefill):
        (params,) = encode.encode(request("r", ITEMS))
        until(lambda: not encode.held())
        assert encoded_here(prefill, request("r", ITEMS, params))


def test_what_is_held_stays_when_room_is_short(tmp_path: Path) -> None:
    """Others of the engine's items take the rest of the pool, again and again."""
    with engines(tmp_path, "encode", "prefill", pool_rows=256) as (encode, prefill):
        (params,) = encode.encode(request("r", {"a": 64, "b": 64}))
        for number in range(5):
            (other,) = encode.encode(request(f"s{number}", {f"c{number}": 128}))
            assert other == {} or prefill.scheduler.available(request(f"s{number}", {}, other), 0)
        assert right(prefill.take(request("r", {"a": 64, "b": 64}, params)), {"a": 64, "b": 64})


def test_an_aborted_request_holds_nothing(pair: tuple[Engine, Engine]) -> None:
    encode, _ = pair
    (params,) = encode.encode(replace(request("r", ITEMS), status=ABORTED))
    assert params == {}
    assert not encode.held()


@pytest.mark.parametrize("other", [{"processor": "another"}, {"revision": "others"}, {"dtype": "float16"}, {"dim": 16}])
def test_engines_that_would_make_other_rows_refuse_each_other(tmp_path: Path, other: dict[str, Any]) -> None:
    """Another processor, other weights, other elements, another width: nothing of it is in the hash of an item."""
    with engines(tmp_path, "encode", "prefill", facts=[replace(FACTS, **other), FACTS]) as (encode, prefill):
        encode.worker.width, encode.worker.dtype = DIM * LEVELS, torch.float32
        (params,) = encode.encode(request("r", {"a": 3}))
        assert params
        assert encoded_here(prefill, request("r", {"a": 3}, params))


@pytest.mark.parametrize("word", ["request_id", "first_block", "engine_id", "port"])
def test_an_item_that_is_not_as_it_was_told_is_encoded_here(tmp_path: Path, word: str) -> None:
    with engines(tmp_path, "encode", "prefill", hold_s=0.5, connect=0.5) as (encode, prefill):
        (params,) = encode.encode(request("r", {"a": 3}))
        wrong = {"request_id": "x", "first_block": 2, "engine_id": "another", "port": 9}[word]
        one = request("r", {"a": 3}, {"a": {**params["a"], f"remote_{word}": wrong}})
        assert encoded_here(prefill, one)
