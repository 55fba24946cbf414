"""Prompts that move while they are computed: every order of events ends right, or not at all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.integrations.vllm.early import ABORTED, ASKED, DecodeEngine, Event, PrefillEngine
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world
from tests.slowness import slowness

from kvplan.integrations.vllm.loads import LoadTimes
from kvplan.integrations.vllm.offers import LayerBatches

Make = Callable[..., tuple[PrefillEngine, DecodeEngine]]


@pytest.fixture(params=["pull", "push"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Engines of different blocks and shards, with states."""
    worlds: list[World] = []

    def engines(**more: object) -> tuple[PrefillEngine, DecodeEngine]:
        lease = more.pop("lease", 5)
        made = world(Shape(2), Shape(1, kernel=8), Model(), mode=request.param, lease=lease)
        worlds.append(made)
        return PrefillEngine(made, **more), DecodeEngine(made)  # type: ignore[arg-type]

    yield engines
    for made in worlds:
        made.close()


def moved(decode: DecodeEngine) -> int:
    """Bytes of the loads in progress, read or written."""
    kv = [array for plane, array in decode.made.decode_memory[0].items() if plane.startswith("kv")]
    return sum(int(array.any(axis=1).sum()) for array in kv)


@pytest.mark.parametrize("layerwise", [True, False])
def test_what_is_computed_moves_before_the_rest_is(make: Make, layerwise: bool) -> None:
    prefill, decode = make(layerwise=layerwise)
    decode.ask("t")
    prefill.arrive("t")
    prefill.step(t=20)
    until(lambda: decode.step() is not None and moved(decode) > 0)
    assert decode.step().received == set()
    prefill.step(t=24)
    prefill.finish("t")
    prefill.step()
    assert decode.outcome("t") == "right"
    until(lambda: prefill.freed("t"))


def test_a_layer_moves_while_the_next_one_is_computed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, decode = make()
    decode.ask("t")
    prefill.arrive("t")
    seen: list[int] = []
    compute = prefill._compute

    def slow(name: str, index: int, first: int, end: int) -> None:
        if index == 1:
            until(lambda: decode.step() is not None and moved(decode) > 0)
            seen.append(index)
        compute(name, index, first, end)

    monkeypatch.setattr(prefill, "_compute", slow)
    prefill.step(t=ASKED)
    prefill.finish("t")
    prefill.step()
    assert (decode.outcome("t"), seen) == ("right", [1])


def test_nothing_moves_before_its_event(make: Make) -> None:
    events: list[Event] = []
    prefill, decode = make(events=events)
    decode.ask("t")
    prefill.arrive("t")
    prefill.step(t=ASKED)
    time.sleep(0.1)
    assert moved(decode) == 0
    events[0].completed = True
    until(lambda: decode.step() is not None and moved(decode) > 0)
    for event in events:
        event.completed = True
    prefill.finish("t")
    prefill.step()
    assert decode.outcome("t") == "right"


def test_the_end_of_a_prompt_moves_once_the_device_has_come_to_it(make: Make) -> None:
    """An engine that drafts writes the last rows of its drafts when it has told that the prompt has ended."""
    event = Event()
    prefill, decode = make()
    for worker in prefill.workers:
        assert worker._prefill is not None
        worker._prefill._mark = lambda: event
    decode.ask("t")
    prefill.arrive("t")
    prefill.step(t=ASKED)
    prefill.finish("t")
    prefill.step()
    assert all(decode.step().received == set() for _ in range(50))
    event.completed = True
    assert decode.outcome("t") == "right"


@pytest.mark.parametrize("chunks", [(44,), (20, 24), (3, 2, 1, 30, 8), (43, 1), (16, 16, 12)])
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_decode_may_ask_at_any_time(make: Make, chunks: tuple[int, ...], when: str) -> None:
    prefill, decode = make()
    if when == "before":
        decode.ask("t")
    prefill.arrive("t")
    for number, tokens in enumerate(chunks):
        prefill.step(t=tokens)
        if (when, number) == ("between", 0):
            decode.ask("t")
    prefill.finish("t")
    prefill.step()
    if when == "after":
        decode.ask("t")
    assert decode.outcome("t") == "right"


@pytest.mark.parametrize("local", [0, 8, 20, 40])
def test_what_decode_has_already_is_left_as_it_is(make: Make, local: int) -> None:
    prefill, decode = make()
    prefill.arrive("t")
    decode.ask("t", local=local)
    prefill.step(t=20)
    prefill.step(t=24)
    prefill.finish("t")
    prefill.step()
    assert decode.outcome("t") == "right"


def test_a_router_that_asks_one_after_the_other_gets_the_same(make: Make) -> None:
    prefill, decode = make()
    prefill.arrive("t")
    prefill.step(t=20)
    prefill.step(t=24)
    told = prefill.finish("t")
    assert told is not None
    prefill.step()
    decode.ask("t", params=told)
    assert decode.outcome("t") == "right"
    until(lambda: prefill.freed("t"))


def test_a_prompt_that_decode_has_frees_prefill_s_blocks(make: Make) -> None:
    prefill, decode = make()
    decode.ask("t", local=ASKED)
    prefill.arrive("t")
    prefill.step(t=ASKED)
    prefill.finish("t")
    until(lambda: prefill.freed("t"))


@pytest.mark.parametrize("asked", ["before", "after"])
@pytest.mark.parametrize("computed", [20, 43])
def test_a_prompt_that_is_preempted_moves_anew(make: Make, asked: str, computed: int) -> None:
    """Half of it was offered from blocks that are others' now."""
    prefill, decode = make()
    if asked == "before":
        decode.ask("t")
    prefill.arrive("t")
    prefill.step(t=computed)
    time.sleep(0.02)
    prefill.preempt("t")
    prefill.step()
    prefill.step(t=30)
    prefill.step(t=30)
    prefill.finish("t")
    prefill.step()
    if asked == "after":
        decode.ask("t")
    assert decode.outcome("t") == "right"
    until(lambda: prefill.freed("t"))


def test_a_prompt_that_is_preempted_is_right_for_a_router_that_asks_later(make: Make) -> None:
    prefill, decode = make()
    prefill.arrive("t")
    prefill.step(t=20)
    prefill.preempt("t")
    prefill.step(t=ASKED)
    told = prefill.finish("t")
    assert told is not None
    prefill.step()
    decode.ask("t", params=told)
    assert decode.outcome("t") == "right"


@pytest.mark.parametrize("asked", ["before", "after"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_prompt_that_is_aborted_on_prefill_fails_at_once(
    make: Make, asked: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvplan.integrations.vllm.loads.REMADE", 0.05)
    prefill, decode = make()
    if asked == "before":
        decode.ask("t")
    prefill.arrive("t")
    for _ in range(steps):
        prefill.step(t=20)
    prefill.finish("t", ABORTED)
    prefill.step()
    if asked == "after":
        decode.ask("t")
    began = time.monotonic()
    assert decode.outcome("t") == "failed"
    assert time.monotonic() - began < 4, "it waited as long as for a prompt that may come"
    assert [sent for sent in prefill.sent if sent] == []


def test_decode_aborts_between_two_chunks(make: Make) -> None:
    prefill, decode = make()
    decode.ask("t")
    prefill.arrive("t")
    prefill.step(t=20)
    until(lambda: decode.step() is not None and moved(decode) > 0)
    decode.abort("t")
    prefill.step(t=24)
    prefill.finish("t")
    prefill.step()
    assert decode.outcome("t") == "failed"
    until(lambda: prefill.freed("t"))


@pytest.mark.parametrize("make", ["push"], indirect=True)
@pytest.mark.parametrize("cause", ["expire", "drain"])
@pytest.mark.parametrize("first", [20, ASKED])
def test_blocks_of_a_hold_that_has_ended_wait_for_no_push_to_a_frozen_engine(
    make: Make, cause: str, first: int
) -> None:
    """The next step's offer is refused, and then the hold; or the last offer, which ends the prompt."""
    prefill, decode = make(lease=0.5 if cause == "expire" else 5)
    workers, frozen = prefill.made.prefill, prefill.made.hub.frozen
    frozen.add(decode.made.decode[0].inspect().transport)
    decode.ask("t")
    prefill.arrive("t")
    prefill.step(t=first)
    until(lambda: all(any(write.under_way for write in worker.inspect().writes) for worker in workers))
    if cause == "expire":
        decode.abort("t")
    for worker in workers if cause == "drain" else ():
        worker.drain(0)
    until(lambda: not any(worker.inspect().sources for worker in workers))
    if first < ASKED:
        prefill.step(t=ASKED - first)
    prefill.finish("t")
    until(lambda: prefill.freed("t"))
    assert all(worker.inspect().writes for worker in workers)
    frozen.clear()
    prefill.step()
    assert all(sent == ["t"] for sent in prefill.sent)


def test_the_same_transfer_twice_at_once_is_offered_once(make: Make) -> None:
    """Each is in blocks of its own: those of both would be mixed by one name."""
    prefill, decode = make()
    prefill.arrive("t")
    prefill.arrive("u", transfer="t")
    decode.ask("t")
    prefill.step(t=20, u=20)
    prefill.step(t=24, u=24)
    prefill.finish("u")
    prefill.step()
    prefill.finish("t")
    prefill.step()
    assert decode.outcome("t") == "right"


def test_the_same_transfer_again_while_the_first_one_is_held(make: Make) -> None:
    prefill, decode = make()
    prefill.arrive("t")
    prefill.step(t=ASKED)
    prefill.finish("t")
    prefill.step()
    prefill.arrive("u", transfer="t")
    prefill.step(u=20)
    prefill.finish("u", ABORTED)
    prefill.step()
    decode.ask("t")
    assert decode.outcome("t") == "right"


def test_what_nobody_asks_for_is_held_for_a_lease_from_its_end(make: Make) -> None:
    lease = slowness()
    prefill, decode = make(lease=lease)
    prefill.arrive("t")
    prefill.step(t=20)
    time.sleep(1.2 * lease)
    prefill.step(t=24)
    assert prefill.sent == [[], []]
    prefill.finish("t")
    prefill.step()
    decode.ask("t")
    assert decode.outcome("t") == "right"


def test_a_prompt_is_held_for_a_lease_from_its_end_however_long_it_took(make: Make) -> None:
    lease = 2 * slowness()
    prefill, decode = make(lease=lease)
    prefill.arrive("t")
    prefill.step(t=20)
    time.sleep(0.8 * lease)
    prefill.step(t=24)
    prefill.finish("t")
    prefill.step()
    time.sleep(0.5 * lease)
    assert not prefill.freed("t")
    decode.ask("t")
    assert decode.outcome("t") == "right"


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_events_ends_right_or_not_at_all(make: Make, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.integrations.vllm.loads.REMADE", 0.2)
    choose = random.Random(seed)
    prefill, decode = make(seed=seed)
    for turn in range(4):
        name, aborted, left = f"t{turn}", False, False
        asks = choose.randrange(6)
        for event in range(6):
            if event == 0:
                prefill.arrive(name)
            if event == asks:
                for array in decode.made.decode_memory[0].values():
                    array[:] = 0
                decode.ask(name, local=choose.choice([0, 0, 8]), seed=turn)
            what = choose.choice(["step", "step", "step", "preempt", "abort", "leave", "rest"])
            if what == "step" and prefill.computed.get(name, 0) < ASKED:
                prefill.step(**{name: choose.randint(1, 30)})
            elif what == "preempt" and prefill.computed.get(name, 0):
                prefill.preempt(name)
                prefill.step()
            elif what == "leave" and event > asks and choose.random() < 0.3:
                decode.abort(name)
                left = True
            elif what == "abort" and choose.random() < 0.2:
                aborted = True
                break
            time.sleep(choose.choice([0, 0.003]))
        while not aborted and prefill.computed.get(name, 0) < ASKED:
            prefill.step(**{name: choose.randint(5, 30)})
        prefill.finish(name, ABORTED if aborted else "FINISHED_LENGTH_CAPPED")
        prefill.step()
        if name not in decode.asked:
            decode.ask(name, seed=turn)
        assert decode.outcome(name) in (("failed",) if aborted else ("right", "failed") if left else ("right",))
        if not aborted:
            until(partial(prefill.freed, name))
    assert all(len(sent) == len(set(sent)) for sent in prefill.sent)


def test_layers_are_offered_in_batches_of_neighbours() -> None:
    layers = LayerBatches({f"l{number}": number for number in range(20)}, range(22))
    said = [layers.computed(f"l{number}") for number in range(20)]
    assert [batch for batch in said if batch][:2] == [(0, 1, 2), (3, 4, 5)]
    assert layers.rest() == (20, 21)
    assert layers.rest() is None
    assert layers.computed("l0") == ()
    assert layers.computed("l0") == ()
    assert layers.computed("unknown") == ()


def test_a_layer_of_two_caches_is_computed_when_both_are() -> None:
    layers = LayerBatches({"a.attn": 3, "a.indexer": 3, "b.attn": 4})
    assert layers.computed("a.attn") == ()
    assert layers.computed("b.attn") == (4,)
    assert layers.rest() == (3,)
    assert (layers.computed("b.attn"), layers.computed("a.attn"), layers.computed("a.indexer")) == ((4,), (), (3,))
    assert layers.rest() == ()


def test_decode_waits_no_longer_than_it_was_told_for_a_prompt_that_never_comes(make: Make) -> None:
    prefill, decode = make()
    assert prefill.sent == [[], []]
    side = decode.worker._decode
    assert side is not None
    side._times = LoadTimes(0.1, 0.05, 5)
    decode.ask("t")
    assert decode.outcome("t") == "failed"
