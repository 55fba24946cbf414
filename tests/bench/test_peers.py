"""Benchmarks beside other libraries: both get the same lists, spans cover memory, a missing environment is a row."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kvplan.bench.all import BESIDE, MEASUREMENTS
from kvplan.bench.lists import draw, preparer
from kvplan.bench.peers import connector
from kvplan.bench.raw import rows
from kvplan.bench.stage import plan_of
from kvplan.cli.commands import bench


@pytest.mark.parametrize(("decode", "requests"), [("tp=8", 80 * 64), ("tp=4", 2 * 80 * 64)])
def test_every_block_of_every_plane_of_every_worker_is_posted(decode: str, requests: int) -> None:
    plan = plan_of("llama-3.3-70b", "tp=8", decode)
    lists = draw(plan, 1024)
    assert [len(set(ids["attention"])) for ids in (lists.prefill, lists.decode)] == [64, 64]
    joined = int((np.diff(sorted_pairs(lists.prefill["attention"], lists.decode["attention"])) == (1 << 32) + 1).sum())
    assert requests - 160 * joined <= preparer(plan, lists)() <= requests


def sorted_pairs(prefill: list[int], decode: list[int]) -> np.ndarray:
    return np.sort((np.array(decode) << 32) | np.array(prefill))


def test_lists_are_in_the_order_of_groups_and_slots_are_none_of_the_blocks() -> None:
    plan = plan_of("nemotron-3-nano-30b", "tp=4,block=2096", "tp=1")
    lists = draw(plan, 8192)
    for side, ids in ((plan.prefill, lists.prefill), (plan.decode, lists.decode)):
        assert list(ids) == [group.name for group in side.groups]
        assert [len(each) for each in ids.values()] == [4, 1, 1, 1, 1]
        every = [number for each in ids.values() for number in each]
        assert len(set(every)) == len(every)
        assert max(every) < lists.pool


def test_spans_follow_each_other_and_cover_the_memory() -> None:
    assert rows(4096, 96, 32).tolist() == [[4096, 32, 0], [4128, 32, 0], [4160, 32, 0]]


def test_without_an_environment_the_reason_is_a_row(tmp_path: Path) -> None:
    for named in ("", str(tmp_path)):
        (row,) = connector(named, 2)
        assert (row.name, row.met) == ("not measured", None)
        assert "make vllm" in row.value


def test_an_environment_that_fails_says_why(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'No module named x' >&2\nexit 1\n")
    python.chmod(0o755)
    (row,) = connector(str(tmp_path), 2)
    assert (row.name, row.value) == ("not measured", "No module named x")


def test_what_needs_another_environment_runs_only_where_it_is_named() -> None:
    assert not set(BESIDE) & set(MEASUREMENTS)


def test_help_names_every_measurement() -> None:
    words = set(re.findall(r"\w+", str(bench.command.help)))
    assert words >= {*MEASUREMENTS, *BESIDE}
