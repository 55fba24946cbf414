"""The benchmark of predictions posts as many descriptors as are predicted, for requests without adjacent blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.demo.test_demo import needs_nixl

from kvplan.bench import predicting
from kvplan.bench.stage import library
from kvplan.plan.block_tables import blocks
from kvplan.plan.files.loader import load_plan

SMALL = [("qwen3-0.6b", "tp=1", "tp=8", "direct"), ("gpt-oss-20b", "tp=1", "tp=8", "direct")]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[predicting.PredictedPair]:
    monkeypatch.setattr(predicting, "PAIRS", SMALL)
    return predicting.compiled(str(tmp_path))


def test_no_two_blocks_are_neighbours_and_none_is_named_twice(small: list[predicting.PredictedPair]) -> None:
    for pair in small:
        wanted = predicting.request(load_plan(pair.path), "r")
        for tables in (wanted.prefill, wanted.decode):
            every = [blocks(table).ids for table in tables.values()]
            assert all((np.diff(ids) > 1).all() for ids in every)
            assert len(np.unique(np.concatenate(every))) == sum(map(len, every))
            assert max(int(ids.max()) for ids in every) < pair.blocks


@needs_nixl
def test_as_many_requests_are_posted_as_are_predicted(small: list[predicting.PredictedPair]) -> None:
    with predicting.readers(small, turns=1) as met:
        for reader in met:
            moves = reader.pair.moves(library().machine(library().default_machine))
            moved = [move.descriptors for move in moves if 0 in move.workers]
            posted = reader.worker.predict(predicting.request(reader.peer.plan, "r"))
            assert sum(posted.values()) == sum(moved)
            assert reader.read(0) > 0
