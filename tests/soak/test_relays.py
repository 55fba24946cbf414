"""Relays both ways at once, in short."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.soak.relays import WAVE, relayed


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_what_is_relayed_both_ways_arrives(mode: str) -> None:
    struck = Counter[str]()
    tally = relayed(Random(1), mode, 3, struck)
    assert (tally.wrong, tally.harmed) == ([], [])
    assert tally.ended == {"done": 3 * 4 * WAVE}
    assert tally.begun == {f"{mode}, relayed": 3 * 4 * WAVE}
    assert struck["relay"] == 3 * 2 * WAVE
    assert struck["callback that raises"]
