"""Checksums in the protocol: what differs from what prefill holds is never done, and the first layer is named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.decode.test_worker import freed, moved_apart
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Sample, errors
from kvplan.runtime.checksum.checksum import of_read
from kvplan.runtime.protocol.phases import Phase

SHAPES = [(Shape(2), Shape(1)), (Shape(1), Shape(2)), (Shape(2, kernel=6), Shape(1, ratio=2))]


def disturbed(made: World, change: Callable[[World], None], monkeypatch: pytest.MonkeyPatch, sample: Sample) -> Any:
    """A request whose memory is changed after it has moved and before it is summed."""
    request = ask(made, (0, 45))
    filled(made, request)
    made.hold("r")
    changes = [change]

    def summed(*arguments: Any) -> Any:
        if changes:
            changes.pop()(made)
        return of_read(*arguments)

    monkeypatch.setattr("kvplan.runtime.decode.mover.of_read", summed)
    return made.decode[0].submit(request, 20, checksum=sample)


def flip(plane: str, block: int, byte: int) -> Callable[[World], None]:
    def change(made: World) -> None:
        made.decode_memory[0][plane][block, byte] ^= 1

    return change


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize(("plane", "layer"), [("kv.3", 3), ("kv.7", 7), ("state.7", 7)])
def test_one_bit_is_seen_and_its_layer_named(
    plane: str, layer: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(Shape(2), Shape(1), mode=mode)
    request = ask(made, (0, 45))
    block = request.decode["kv"].ids[2] if plane.startswith("kv") else 6  # type: ignore[union-attr]
    failed = disturbed(made, flip(plane, block, 5), monkeypatch, Sample())
    until(failed.poll)
    assert isinstance(failed.error, errors.ChecksumError)
    assert f"layer {layer} of cache {plane.partition('.')[0]!r} differs" in str(failed.error)
    assert failed.untrusted["kv"]
    until(lambda: freed(made.decode[0]))


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize(
    "shapes", [(Shape(2), Shape(1)), (Shape(1), Shape(2)), (Shape(2, kernel=6), Shape(1, ratio=2))]
)
def test_what_is_alike_is_done(shapes: tuple[Shape, Shape], mode: str) -> None:
    made = world(*shapes, Model(heads=2), mode=mode)
    for number, sample in enumerate((Sample(), Sample(every=3, seed=7))):
        request = ask(made, (0, 45), name=str(number))
        filled(made, request)
        made.hold(request.id)
        for worker in made.decode:
            assert worker.submit(request, 20, checksum=sample).wait().state == "done"


def test_a_request_that_is_unlike_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(Shape(1), Shape(1))
    first = int(ask(made, (0, 45)).decode["kv"].ids[0])  # type: ignore[union-attr]
    broken = disturbed(made, flip("kv.3", first, 0), monkeypatch, Sample())
    until(broken.poll)
    assert broken.state == "failed"
    until(lambda: freed(made.decode[0]))
    assert made.decode[0].submit(ask(made, (0, 45)), 20).wait().state == "done"
    assert made.released() == {("r", "finished")}


def test_a_whole_hit_has_nothing_to_sum() -> None:
    made = world(Shape(1), Shape(1))
    made.hold("r")
    assert made.decode[0].submit(ask(made, (8, 8)), 20, checksum=Sample()).wait().state == "done"


def test_other_requests_go_on_while_one_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, summed = world(Shape(1), Shape(1)), threading.Event()

    def slow(*arguments: Any) -> Any:
        assert summed.wait(10)
        return of_read(*arguments)

    monkeypatch.setattr("kvplan.runtime.decode.mover.of_read", slow)
    made.hold("slow")
    slowly = made.decode[0].submit(ask(made, (0, 12), name="slow"), 20, checksum=Sample())
    until(lambda: slowly.poll() or all(part.phase is Phase.MOVED for part in slowly.parts))
    made.hold("next")
    assert made.decode[0].submit(moved_apart(ask(made, (0, 12), name="next")), 20).wait().state == "done"
    assert not slowly.ended
    summed.set()
    assert slowly.wait().state == "done"
