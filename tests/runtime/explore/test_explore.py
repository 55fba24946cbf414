"""A small part of what `make model` explores, and faults that the laws find."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from tests.runtime.explore.__main__ import TROUBLES, space
from tests.runtime.explore.search import walk
from tests.runtime.explore.world import BrokenLawError, Fixed, World
from tests.shares import later

from kvplan.runtime.protocol.holds import Hold
from kvplan.runtime.protocol.load_table import LoadTable
from kvplan.runtime.protocol.quarantine import Quarantine
from kvplan.runtime.protocol.source import SourceRequest

WAYS = [(False, False), (False, True), (True, False), (True, True)]
IDS = ["pull, whole", "pull, chunks", "push, whole", "push, chunks"]


@pytest.mark.parametrize(("push", "chunked"), WAYS, ids=IDS)
def test_without_trouble_every_order_ends_well(push: bool, chunked: bool) -> None:
    found = space(("a", "a"), push, chunked, 0)
    assert found.whole
    assert (found.ends, found.states > 25) == (1, True)


@pytest.mark.parametrize(("push", "chunked"), WAYS, ids=IDS)
def test_one_trouble_at_any_point_breaks_no_law(push: bool, chunked: bool) -> None:
    found = space(("a", "a"), push, chunked, 1, depth=7 if chunked else 8)
    assert found.states > 300


def walked(seeds: range) -> None:
    """Random orders with more holds of one name and more troubles than all orders can be tried of."""
    for seed, way in product(seeds, WAYS):
        walk(World.new(Fixed.of(*way, ("a", "a", "a")), dict.fromkeys(TROUBLES, 4), 4), random.Random(seed))


@pytest.mark.parametrize("seeds", [range(50), *later([range(50, 1000)])], ids=["some", "more"])
def test_random_orders_of_a_name_that_is_held_again_break_no_law(seeds: range) -> None:
    walked(seeds)


@pytest.mark.parametrize(
    ("kind", "method", "mutant", "broken"),
    [
        (Quarantine, "add", lambda quarantine, load: quarantine.ledger.free(load.written), "it does not belong"),
        (SourceRequest, "differs", lambda *_: "", "is done with the content of holds"),
    ],
    ids=["no quarantine", "other blocks"],
)
def test_random_orders_find_faults(
    kind: type, method: str, mutant: Any, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, method, mutant)
    with pytest.raises(BrokenLawError, match=broken):
        walked(range(50))


def test_blocks_of_a_failed_request_that_are_free_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quarantine, "add", lambda quarantine, load: quarantine.ledger.free(load.written))
    with pytest.raises(BrokenLawError, match="to which it does not belong"):
        space(("a", "a"), False, False, 1)


def test_a_claim_of_other_blocks_that_is_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceRequest, "differs", lambda *_: "")
    with pytest.raises(BrokenLawError, match=r"done with the content of holds \[-1, -1\], not 0") as broken:
        space(("a", "a"), False, False, 1)
    assert "withdraw 0 → hold 1" in broken.value.__notes__[0], "the way to it is told"


def test_a_promise_that_an_earlier_connection_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hold, "has_claimed", lambda hold, claimant: claimant in hold.promises)
    with pytest.raises(BrokenLawError, match="was claimed, and not kept") as broken:
        space(("a",), False, False, 1)
    assert "ask 0 → prefill hears" in broken.value.__notes__[0]
    assert "prefill hears late" in broken.value.__notes__[0]


def test_a_request_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadTable, "fail", lambda *_: None)
    with pytest.raises(BrokenLawError, match="something is left"):
        space(("a", "a"), False, False, 1)
