"""Checksums in the protocol: what differs from what prefill holds is never done, and the first layer is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.decode.test_worker import freed
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import Sample, errors
from kvplan.runtime.checksum.background import summed


def disturbed(made: World, change: Callable[[World], None], monkeypatch: pytest.MonkeyPatch, sample: Sample) -> Any:
    """A request whose memory is changed after it has moved and before it is summed."""
    request = ask(made, (0, 45))
    filled(made, request)
    made.hold("r")
    changes = [change]

    def changed(*arguments: Any) -> Any:
        if changes:
            changes.pop()(made)
        return summed(*arguments)

    monkeypatch.setattr("kvplan.runtime.decode.driver.summed", changed)
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
