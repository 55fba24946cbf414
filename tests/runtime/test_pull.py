"""Requests end to end over memory: every byte of every decode worker, and every way a request can fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from kvplan.runtime import Request, Slot, errors
from kvplan.runtime.plan import Blocks
from kvplan.runtime.request import blocks
from tests.runtime.plans import Model, Shape
from tests.runtime.worlds import World, expect, fill, tables, truth, world

PAIRS = [
    pytest.param(Shape(2), Shape(1), Model(), id="tp2-tp1"),
    pytest.param(Shape(1), Shape(2), Model(), id="tp1-tp2"),
    pytest.param(Shape(1), Shape(1), Model(), id="equal"),
    pytest.param(Shape(1, tail=16), Shape(1, tail=16), Model(), id="equal-padded"),
    pytest.param(Shape(1, tail=16), Shape(1, tail=32), Model(), id="unlike-padding"),
    pytest.param(Shape(4), Shape(4), Model(), id="copies"),
    pytest.param(Shape(2, ratio=3), Shape(1, ratio=5), Model(heads=4), id="ratios"),
    pytest.param(Shape(2, kernel=6), Shape(1, kernel=4, ratio=2), Model(state=False), id="unlike-blocks"),
    pytest.param(Shape(3), Shape(2), Model(heads=6), id="3-2"),
]
TOKENS = [(0, 48), (0, 45), (5, 45), (4, 44), (13, 14), (0, 3)]


@pytest.fixture
def pair() -> Iterator[World]:
    made = world(Shape(2), Shape(1))
    yield made
    made.close()


def ids(shape: Shape, count: int, order: str, seed: int) -> list[int]:
    need = -(-count // (shape.kernel * shape.ratio))
    found = np.random.default_rng(seed).permutation(20)[:need] + 3
    return {"random": found, "rising": np.arange(need) + 7, "edges": np.arange(need)}[order].tolist()


def ask(made: World, tokens: tuple[int, int], order: str = "random", name: str = "r") -> Request:
    sides = [
        tables(shape, made.model, ids(shape, tokens[1], order, n), 0, 5 + n, tokens[1])
        for n, shape in enumerate(made.shapes)
    ]
    return Request(name, tokens, sides[0], sides[1])


def pull(made: World, request: Request) -> None:
    content = truth(made.model, request.tokens[1])
    for number, arrays in enumerate(made.prefill_memory):
        fill(made.shapes[0], made.model, number, arrays, content, request.prefill)
    for number, puller in enumerate(made.decode):
        predicted = sum(puller.predict(request).values())
        done = puller.submit(request, 20).wait()
        assert (done.state, done.requests, done.posted) == ("done", predicted, predicted)
        wanted = expect(made.shapes[1], made.model, number, content, request.decode, request.tokens)
        for plane, array in made.decode_memory[number].items():
            np.testing.assert_array_equal(
                without_padding(made, number, plane, array), without_padding(made, number, plane, wanted[plane])
            )


def without_padding(made: World, number: int, plane: str, array: np.ndarray) -> np.ndarray:
    entry = made.plan.decode.workers[number].planes[0 if plane.startswith("kv") else 1]
    return array[:, : entry.page]


def finished(made: World, seconds: float = 5) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in made.prefill]
    until = time.monotonic() + seconds
    while time.monotonic() < until and not all(found):
        for number, worker in enumerate(made.prefill):
            found[number] += worker.finished()
        time.sleep(0.001)
    return found


@pytest.mark.parametrize("order", ["random", "rising", "edges"])
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize(("prefill", "decode", "model"), PAIRS)
def test_every_byte(prefill: Shape, decode: Shape, model: Model, tokens: tuple[int, int], order: str) -> None:
    made = world(prefill, decode, model)
    try:
        pull(made, ask(made, tokens, order))
        assert finished(made) == [["r"]] * prefill.workers
    finally:
        made.close()


def test_neighbouring_blocks_are_one_request_per_plane() -> None:
    made = world(Shape(1), Shape(1), Model(heads=1, state=False))
    assert made.decode[0].predict(ask(made, (0, 45), "rising")) == {0: 2}
    made.close()


def test_padding_is_bridged_only_where_it_faces_padding() -> None:
    bridged = world(Shape(1, tail=16), Shape(1, tail=16), Model(state=False))
    unlike = world(Shape(1, tail=16), Shape(1, tail=32), Model(state=False))
    assert bridged.decode[0].predict(ask(bridged, (0, 48), "rising")) == {0: 2}
    assert unlike.decode[0].predict(ask(unlike, (0, 48), "rising")) == {0: 24}
    bridged.close()
    unlike.close()


def test_a_whole_hit_moves_nothing_and_tells_everyone(pair: World) -> None:
    request = replace(ask(pair, (8, 8)), tokens=(8, 8))
    assert pair.decode[0].submit(request, 5).wait().requests == 0
    assert finished(pair) == [["r"], ["r"]]


def test_tokens_before_the_first_are_never_written(pair: World) -> None:
    pull(pair, ask(pair, (5, 9)))


BAD = {
    "unknown group": (
        lambda r: replace(r, decode={**r.decode, "stats": Blocks(0, np.arange(3))}),
        "did you mean 'state'",
    ),
    "missing group": (lambda r: replace(r, prefill={"kv": r.prefill["kv"]}), "'state' of the prefill side is missing"),
    "repeated id": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, 2, 1]))}),
        "block 1 is named twice",
    ),
    "unlike at": (lambda r: replace(r, prefill={**r.prefill, "state": Slot(1, 11)}), "stands after 11 tokens"),
    "short table": (lambda r: replace(r, prefill={**r.prefill, "kv": Blocks(0, np.arange(2))}), r"positions \[0, 2\)"),
    "null block": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, -1, 2]))}),
        "no block at position 1",
    ),
    "beyond the pool": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, 40, 2]))}),
        "pool has 40",
    ),
    "prefill beyond the pool": (
        lambda r: replace(r, prefill={**r.prefill, "kv": Blocks(0, np.array([1, 40, 2]))}),
        "pool has 40",
    ),
    "negative id": (lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1, -2, 2]))}), "ids from -2"),
    "no slot": (lambda r: replace(r, decode={**r.decode, "state": Slot(-1, 12)}), "ids from -1"),
    "slot for tokens": (lambda r: replace(r, decode={**r.decode, "kv": Slot(1, 12)}), "give Blocks, not Slot"),
    "floats": (
        lambda r: replace(r, decode={**r.decode, "kv": Blocks(0, np.array([1.7, 2, 3]))}),
        "one row of integers",
    ),
    "backwards": (lambda r: replace(r, tokens=(12, 11)), "no range"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_fails_alone(pair: World, name: str) -> None:
    change, text = BAD[name]
    failed = pair.decode[0].submit(change(ask(pair, (0, 12))), 5)
    assert (failed.state, type(failed.error), failed.untrusted) == ("failed", errors.BadRequestError, {})
    with pytest.raises(errors.BadRequestError, match=text):
        failed.wait()
    assert not any(array.any() for array in pair.decode_memory[0].values())
    pull(pair, ask(pair, (0, 12), name="next"))


def test_one_id_in_two_overlaid_groups_is_repeated() -> None:
    made = world(Shape(1), Shape(1), Model(states_overlay=False))
    overlaid = replace(made.plan.decode.groups[1], arena=0)
    decode = replace(made.plan.decode, groups=(made.plan.decode.groups[0], overlaid))
    from kvplan.runtime.request import check

    request = ask(made, (0, 8))
    request = replace(request, decode={"kv": Blocks(0, np.array([4, 9])), "state": Slot(9, 8)})
    with pytest.raises(errors.BadRequestError, match="block 9 is named twice"):
        check(replace(made.plan, decode=decode), request, {}, {})
    made.close()


def test_a_block_under_way_is_not_written_twice(pair: World) -> None:
    pair.hub.frozen |= {worker._transport.name for worker in pair.prefill}
    first = pair.decode[0].submit(ask(pair, (0, 12)), 20)
    second = pair.decode[0].submit(ask(pair, (0, 12), name="other"), 20)
    same = pair.decode[0].submit(ask(pair, (0, 12)), 20)
    assert not first.ended
    assert isinstance(second.error, errors.QuarantinedError)
    assert isinstance(same.error, errors.BadRequestError)
    pair.hub.frozen.clear()
    first.wait()


def test_a_frozen_peer_meets_the_deadline_and_its_blocks_the_quarantine(pair: World) -> None:
    puller, request = pair.decode[0], ask(pair, (0, 12))
    pair.hub.frozen.add(pair.prefill[1]._transport.name)
    with pytest.raises(errors.DeadlineError) as caught:
        puller.submit(request, 0.05).wait()
    assert caught.value.untrusted["kv"] == tuple(sorted(blocks(request.decode["kv"]).ids.tolist()))
    assert puller.quarantined()[0] == caught.value.untrusted["kv"]
    refused = puller.submit(replace(request, id="again"), 5)
    assert isinstance(refused.error, errors.QuarantinedError)
    pair.hub.frozen.clear()
    puller.poll()
    assert puller.quarantined() == {}
    pull(pair, ask(pair, (0, 12), name="after"))


def test_dropping_a_peer_does_not_free_what_may_still_be_written(pair: World) -> None:
    pair.hub.frozen |= {worker._transport.name for worker in pair.prefill}
    failed = pair.decode[0].submit(ask(pair, (0, 12)), 20)
    failed.cancel()
    assert isinstance(failed.error, errors.CancelledTransferError)
    assert pair.decode[0].quarantined()
    pair.decode[0].drop(0)
    assert pair.decode[0].quarantined()
    pair.decode[0].drop(1)
    assert pair.decode[0].quarantined()
    assert pair.decode[0].connected() == ()
    pair.decode[0].connect(pair.prefill[0].address, 10)
    assert isinstance(pair.decode[0].submit(ask(pair, (0, 12), name="early"), 5).error, errors.QuarantinedError)
    pair.hub.frozen.clear()
    pair.decode[0].poll()
    assert pair.decode[0].quarantined() == {}
    pull(pair, ask(pair, (0, 12), name="after"))


def test_a_dead_peer_fails_the_request_and_a_new_one_is_met(pair: World) -> None:
    puller, lost = pair.decode[0], pair.prefill[1]._transport
    pair.hub.frozen.add(lost.name)
    running = puller.submit(ask(pair, (0, 12)), 20)
    lost.close()
    with pytest.raises(errors.TransferError, match="prefill worker 1"):
        running.wait()
    assert puller.connected() == (0,)
    refused = puller.submit(ask(pair, (0, 12), name="early"), 5)
    assert isinstance(refused.error, errors.HandshakeError)


def test_await_and_callback(pair: World) -> None:
    seen: list[str] = []
    transfer = pair.decode[0].submit(ask(pair, (0, 12)), 5)
    transfer.on_end(lambda one: seen.append(one.state))

    async def both() -> str:
        return (await transfer).state

    assert asyncio.run(both()) == "done"
    assert seen == ["done"]


def test_a_callback_that_raises_disturbs_nobody(pair: World, caplog: pytest.LogCaptureFixture) -> None:
    pair.hub.frozen |= {worker._transport.name for worker in pair.prefill}
    transfer = pair.decode[0].submit(ask(pair, (0, 12)), 5)
    transfer.on_end(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    pair.hub.frozen.clear()
    assert transfer.wait().state == "done"
    assert "callback failed" in caplog.text


def test_descriptors_beyond_an_int32_are_refused(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.gather.INT32", 3)
    failed = pair.decode[0].submit(ask(pair, (0, 45)), 5)
    assert isinstance(failed.error, errors.TransferError)
    assert isinstance(failed.error.__cause__, errors.LimitError)
    assert pair.decode[0].quarantined() == {}


def test_lists_beyond_an_int32_go_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.prepare.INT32", 3)
    made = world(Shape(2), Shape(1))
    pull(made, ask(made, (0, 45)))
    made.close()


def test_a_worker_that_cannot_be_told_does_not_spoil_what_was_read() -> None:
    made = world(Shape(2), Shape(2), Model(state=False))
    made.prefill[1]._transport.close()
    transfer = made.decode[0].submit(ask(made, (0, 12)), 5).wait()
    assert (transfer.state, transfer.unnotified) == ("done", (1,))
    made.close()


def test_closed(pair: World) -> None:
    pair.decode[0].close()
    assert isinstance(pair.decode[0].submit(ask(pair, (0, 12)), 5).error, errors.HandshakeError)
