"""The default mode of a pair: decode reads if a fabric allows one-sided reads, otherwise prefill writes."""

from __future__ import annotations

import logging

import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, move
from tests.runtime.helpers.worlds import World, world

from kvplan.runtime import errors


def met(made: World, mode: str | None = None) -> str:
    """Connect again, and return the mode."""
    worker, address = made.decode[0], made.prefill[0].address
    peer = worker.connect(address, 10) if mode is None else worker.connect(address, 10, mode=mode)
    made.mode = peer.mode
    return peer.mode


@pytest.mark.parametrize(
    ("first", "second", "mode"),
    [
        ({"memory"}, {"memory"}, "pull"),
        ({"rdma", "host a"}, {"memory", "rdma"}, "pull"),
        ({"memory"}, {"host b"}, "push"),
        (set(), {"memory"}, "push"),
        (set(), set(), "push"),
    ],
)
def test_one_worker_without_a_fabric_in_common_is_enough_to_push(first: set[str], second: set[str], mode: str) -> None:
    made = world(Shape(2), Shape(1))
    made.transport(made.decode[0]).fabrics = frozenset({"memory", "rdma"})
    for worker, fabrics in zip(made.prefill, (first, second), strict=True):
        made.transport(worker).fabrics = frozenset(fabrics)
    assert met(made) == mode
    assert met(made) == mode
    assert [peer.mode for peer in made.decode[0].peers()] == [mode]
    move(made, ask(made, (0, 45)))


def test_who_says_so_decides(caplog: pytest.LogCaptureFixture) -> None:
    made = world(Shape(2), Shape(1))
    assert met(made, "push") == "push"
    made.transport(made.prefill[0]).fabrics = frozenset()
    assert met(made, "pull") == "pull"
    assert met(made) == "pull", "what is connected, and has not changed, stays as it is"
    made.decode[0].drop("prefill")
    with caplog.at_level(logging.INFO, "kvplan"):
        assert met(made) == "push"
    assert [record.getMessage() for record in caplog.records if "push chosen" in record.getMessage()]
    with pytest.raises(errors.HandshakeError, match="use auto, pull or push"):
        met(made, "relay")
