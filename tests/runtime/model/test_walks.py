"""Random walks through the protocol keep its law, and break it where a rule is undone."""

from __future__ import annotations

import os

import pytest
from tests.runtime.model.protocol import Protocol
from tests.runtime.model.walk import walk

SEEDS = int(os.environ.get("WALKS", "6"))
TURNS = 120


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_done_has_the_bytes_of_the_hold_that_was_told_of(
    seed: int, workers: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Protocol(monkeypatch, mode, workers, seed)
    walk(model, TURNS)
    model.close()
