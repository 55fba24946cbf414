"""Requests that are fed in chunks while they are computed, pulled and pushed: right bytes, and nothing too early."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, check, clear, fed, filled
from tests.runtime.helpers.staging import untouched
from tests.runtime.helpers.steered import Flag
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.plan.block_tables import Tables
from kvplan.runtime import Request, Sample, Transfer, errors
from kvplan.runtime.protocol.phases import Phase

Chunks = list[tuple[tuple[int, int], tuple[int, ...] | None]]
LAYERS = (3, 7)
SHAPES = [(Shape(2), Shape(1)), (Shape(1), Shape(2)), (Shape(2, kernel=6), Shape(1, ratio=2))]


def polled(made: World, met: Callable[[], bool]) -> None:
    """Poll the decode workers until `met`."""
    until(met, *(worker.run_once for worker in made.decode))


def cuts(end: int, seed: int) -> Chunks:
    """Chunks of tokens [0, end), some of them by layer, in a random order of layers."""
    draw = random.Random(seed)
    edges = [0, *sorted(draw.sample(range(1, end), 3)), end]
    found: Chunks = []
    for first, last in pairwise(edges):
        layers = [(layer,) for layer in draw.sample(LAYERS, 2)]
        found += [((first, last), one) for one in layers] if draw.random() < 0.5 else [((first, last), None)]
    return found


def offer(made: World, request: Request, chunks: Chunks, after: Flag | None = None, more: bool = False) -> None:
    for number, (tokens, layers) in enumerate(chunks):
        last = number == len(chunks) - 1 and not more
        tables: Tables = request.prefill if tokens[1] == request.tokens[1] else {"kv": request.prefill["kv"]}
        for worker in made.prefill:
            worker.offer(request.id, tokens, tables, layers=layers, last=last, after=after)


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_every_byte_in_chunks(shapes: tuple[Shape, Shape], mode: str, seed: int) -> None:
    made = world(*shapes, mode=mode)
    request = ask(made, (0, 45))
    filled(made, request)
    for worker in made.prefill:
        worker.open("r", (0, 45))
    moving = [worker.open(fed(request), 20, checksum=Sample()) for worker in made.decode]
    offer(made, request, cuts(45, seed))
    for number, transfer in enumerate(moving):
        polled(made, transfer.poll)
        assert (transfer.state, transfer.progress) == ("done", 1.0), transfer.error
        check(made, number, request)
    assert made.released() == {("r", "finished")}


def started(made: World, request: Request, call: str = "open", opened: tuple[int, int] | None = None) -> Transfer:
    """A request that decode asks for by `call`; one that it opens prefill has said by now to hold, or has failed."""
    for worker in made.prefill:
        worker.open(request.id, opened or request.tokens)
    if call == "submit":
        return made.decode[0].submit(request, 20)
    transfer = made.decode[0].open(fed(request), 20)
    polled(made, lambda: transfer.ended or all(part.phase is not Phase.CLAIMING for part in transfer.parts))
    return transfer


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_nothing_moves_before_its_event(mode: str) -> None:
    made, event = world(Shape(1), Shape(1), mode=mode), Flag()
    request = ask(made, (0, 12))
    transfer = started(made, request)
    offer(made, request, [((0, 12), None)], after=event)
    for _ in range(20):
        made.decode[0].run_once()
        time.sleep(0.001)
    assert not any(array.any() for array in made.decode_memory[0].values())
    filled(made, request)
    event.done = True
    polled(made, transfer.poll)
    check(made, 0, request)
    assert transfer.query()


WRONG: dict[str, tuple[Chunks, str]] = {
    "overlap": ([((0, 8), None), ((4, 12), None)], "overlap"),
    "gap": ([((0, 4), None), ((8, 12), None)], "gaps"),
    "unknown layer": ([((0, 12), (4,))], "unknown"),
    "a layer twice": ([((0, 12), (3,)), ((0, 12), (3, 7))], "overlap"),
    "half of the layers": ([((0, 12), (3,))], "gaps"),
}


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("call", ["open", "submit"])
@pytest.mark.parametrize("name", WRONG)
def test_chunks_that_do_not_make_the_request_fail_it(mode: str, call: str, name: str) -> None:
    """However decode asks for it: what is asked for as a whole may be fed."""
    chunks, text = WRONG[name]
    made = world(Shape(1), Shape(1), mode=mode)
    request = ask(made, (0, 12))
    transfer = started(made, request, call)
    offer(made, request, chunks)
    polled(made, transfer.poll)
    assert isinstance(transfer.error, errors.BadRequestError)
    assert text in str(transfer.error)
    if (call, mode) == ("submit", "pull"):
        assert untouched(made)
    clear(made)
    for worker in made.prefill:
        worker.withdraw("r")
    assert made.released() == {("r", "withdrawn")}


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("call", ["open", "submit"])
@pytest.mark.parametrize("opened", [(4, 12), (0, 11)])
def test_other_tokens_than_were_opened_fail_the_request(mode: str, call: str, opened: tuple[int, int]) -> None:
    made = world(Shape(1), Shape(1), mode=mode)
    request = ask(made, (0, 12))
    transfer = started(made, request, call, opened)
    offer(made, replace(request, tokens=opened), [(opened, None)])
    polled(made, transfer.poll)
    assert isinstance(transfer.error, errors.BadRequestError)
    if (call, mode) != ("open", "pull"):  # there each chunk is looked at as it comes
        assert f"was opened for {opened}, wanted are (0, 12)" in str(transfer.error)
    assert untouched(made)


STATELESS = Model(state=False)
CUTS: dict[str, Chunks] = {
    "held whole": [],
    "one chunk": [((0, 45), None)],
    "a cut behind": [((0, 20), None), ((20, 45), None)],
    "a cut there": [((0, 44), None), ((44, 45), None)],
    "layers": [((0, 45), (3,)), ((0, 45), (7,))],
}


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("call", ["open", "submit"])
@pytest.mark.parametrize("tokens", [(0, 44), (20, 44), (0, 1), (3, 20)])
@pytest.mark.parametrize("name", CUTS)
def test_decode_may_ask_for_fewer_tokens_than_prefill_has(
    mode: str, call: str, tokens: tuple[int, int], name: str
) -> None:
    """It computes the others itself. Not a byte of them is written."""
    made = world(Shape(2), Shape(1), STATELESS, mode=mode)
    whole = ask(made, (0, 45))
    filled(made, whole)
    fewer = replace(whole, tokens=tokens)
    if CUTS[name]:
        transfer = started(made, fewer, call, (0, 45))
        offer(made, whole, CUTS[name])
    else:
        for worker in made.prefill:
            worker.hold("r", whole.prefill, tokens=(0, 45))
        transfer = made.decode[0].submit(fewer, 20) if call == "submit" else made.decode[0].open(fed(fewer), 20)
    polled(made, transfer.poll)
    assert transfer.state == "done", transfer.error
    check(made, 0, fewer, held=45)
    assert made.released() == {("r", "finished")}


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("call", ["open", "submit"])
def test_more_tokens_than_are_held_fail_the_request(mode: str, call: str) -> None:
    """They would lie in the same blocks, and nothing was computed there."""
    made = world(Shape(2), Shape(1), STATELESS, mode=mode)
    request = ask(made, (0, 45))
    for worker in made.prefill:
        worker.hold("r", request.prefill, tokens=(0, 44))
    transfer = made.decode[0].submit(request, 20) if call == "submit" else made.decode[0].open(fed(request), 20)
    polled(made, transfer.poll)
    assert isinstance(transfer.error, errors.BadRequestError)
    if (call, mode) != ("open", "pull"):
        assert "was opened for (0, 44), wanted are (0, 45)" in str(transfer.error)
        assert untouched(made)


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("call", ["open", "submit"])
def test_a_state_stands_behind_all_tokens_and_is_not_taken_for_fewer(mode: str, call: str) -> None:
    made = world(Shape(2), Shape(1), mode=mode)
    whole, fewer = ask(made, (0, 45)), ask(made, (0, 44))
    for worker in made.prefill:
        worker.hold("r", whole.prefill, tokens=(0, 45))
    transfer = made.decode[0].submit(fewer, 20) if call == "submit" else made.decode[0].open(fed(fewer), 20)
    polled(made, transfer.poll)
    assert isinstance(transfer.error, errors.BadRequestError | errors.LeaseError)
    assert untouched(made)


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("early", [False, True], ids=["asked late", "asked early"])
def test_what_is_declined_is_withdrawn(mode: str, early: bool) -> None:
    """An earlier asker is notified at once, and never hears that the request is there."""
    made = world(Shape(2), Shape(1), mode=mode)
    request = fed(ask(made, (0, 12)))
    asked = [made.decode[0].open(request, 20)] if early else []
    polled(made, lambda: not early or all(part.not_held for part in asked[0].parts))
    for worker in made.prefill:
        worker.decline("r")
    [transfer] = asked or [made.decode[0].open(request, 20)]
    polled(made, transfer.poll)
    assert isinstance(transfer.error, errors.RequestError)
    assert "was opened for" not in str(transfer.error)
    assert [worker.released() for worker in made.prefill] == [[], []], "what was never held is not released"
    counts = [worker.counters.snapshot()["ended_holds"] for worker in made.prefill]
    assert [each["withdrawn"] for each in counts] == [0, 0]  # type: ignore[index, call-overload]
