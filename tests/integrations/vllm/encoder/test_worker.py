"""A worker copies what a step orders between the engine's cache and the pool, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.integrations.vllm.encoder.items import content

from kvplan.integrations.vllm.encoder import region
from kvplan.integrations.vllm.encoder.metadata import RowsPlace, StepItems
from kvplan.integrations.vllm.encoder.region import SharedRows
from kvplan.integrations.vllm.encoder.worker import EncoderCache, EncoderWorker

WIDTH, PLACE = 16, RowsPlace(2, 5, 9)
SAVES = StepItems(3, saves={"a": PLACE})


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedRows:
    monkeypatch.setattr(region, "SHARED", tmp_path)
    made = SharedRows("engine", 8, 4 * WIDTH * 4, 2)
    made.join(0)
    made.join(1)
    made.unlink()
    return made


def worker(rows: SharedRows, rank: int = 0, dtype: torch.dtype = torch.float32) -> EncoderWorker:
    return EncoderWorker(rows, rank, rank == 0, WIDTH, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_saved_is_loaded_into_memory_of_its_own(rows: SharedRows, dtype: torch.dtype) -> None:
    one, cache = worker(rows, dtype=dtype), {"a": content("a", 5, WIDTH).to(dtype)}
    one.begin(SAVES)
    one.save(cache, "a")
    assert rows.signed(2, 9)
    loaded: EncoderCache = {}
    one.begin(StepItems(4, loads={"b": PLACE}))
    one.load(loaded)
    assert loaded["b"].dtype == dtype
    rows.rows[:] = 0
    assert torch.equal(loaded["b"], cache["a"])


def test_rows_that_lie_apart_are_saved_side_by_side(rows: SharedRows) -> None:
    """Outputs that an engine keeps for several items may be parts of one tensor."""
    one, wide = worker(rows), content("a", 10, 2 * WIDTH)
    one.begin(SAVES)
    one.save({"a": wide[::2, ::2]}, "a")
    assert torch.equal(one._tensor(PLACE), wide[::2, ::2])


def test_one_of_all_workers_saves_what_the_step_orders(rows: SharedRows) -> None:
    cache = {"a": content("a", 5, WIDTH), "b": content("b", 5, WIDTH)}
    for one in (worker(rows, 1), worker(rows)):
        assert not rows.rows.any()
        one.begin(SAVES if one.rank else StepItems(3))
        one.save_all(cache)
        one.save(cache, "a")
        one.save(cache, "b")
    assert not rows.rows.any(), "worker 0 has no order, worker 1 saves nothing"


def test_what_the_engine_had_before_the_step_is_saved(rows: SharedRows) -> None:
    one = worker(rows)
    one.begin(StepItems(3, saves={"a": PLACE, "absent": RowsPlace(6, 1, 10)}))
    one.save_all({"a": content("a", 5, WIDTH)})
    assert rows.signed(2, 9)
    assert not rows.signed(6, 10)


@pytest.mark.parametrize(
    "made", [content("a", 4, WIDTH), content("a", 5, WIDTH + 1), content("a", 5, WIDTH).half(), torch.zeros(80)]
)
def test_what_is_not_as_the_layout_says_is_not_saved(rows: SharedRows, made: torch.Tensor) -> None:
    one = worker(rows)
    one.begin(SAVES)
    one.save({"a": made}, "a")
    assert not rows.signed(2, 9)
    assert not rows.rows.any()


def test_a_step_is_done_when_it_ends_and_not_before(rows: SharedRows) -> None:
    one = worker(rows)
    one.begin(SAVES)
    assert not rows.done(3, [0])
    one.end()
    assert rows.done(3, [0])
    one.begin(StepItems())
    one.end()
    assert rows.done(3, [0]), "a step without orders has no number"
    one.save({"a": content("a", 5, WIDTH)}, "a")
    assert not rows.signed(2, 9), "orders last for their step"
