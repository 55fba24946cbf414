"""The arithmetic of the benchmark; nothing here depends on how fast the machine is."""

from __future__ import annotations

import json

import pytest

from kvplan.bench.all import measure
from kvplan.bench.report import Row, as_json, as_table, faster, within
from kvplan.bench.sample import interleave, summary


def test_both_are_timed_equally_often_and_in_turns() -> None:
    calls: list[str] = []
    interleave(lambda: calls.append("ours"), lambda: calls.append("theirs"), pairs=4, warmup=0)
    assert calls == ["ours", "theirs", "theirs", "ours"] * 2


def test_the_ratio_is_the_median_of_the_pairs_not_the_ratio_of_medians() -> None:
    found = summary([(1.0, 2.0), (2.0, 2.0), (9.0, 3.0)])
    assert (found.ours, found.theirs, found.ratio) == (2.0, 2.0, 1.0)
    assert (found.least, found.most, found.pairs) == (0.5, 3.0, 3)


@pytest.mark.parametrize(("times", "met"), [([(1.0, 4.0)] * 3, True), ([(1.0, 3.9)] * 3, False)])
def test_faster_holds_from_the_bound_on(times: list[tuple[float, float]], met: bool) -> None:
    assert faster("a", "b", summary(times), 4.0).met is met


def test_within_holds_up_to_the_bound() -> None:
    assert within("a", "b", summary([(1.05, 1.0)] * 3), 1.05).met
    assert not within("a", "b", summary([(1.06, 1.0)] * 3), 1.05).met


def test_the_report_is_json_and_a_table() -> None:
    rows = [Row("area", "name", "1 x"), within("a", "b", summary([(1.0, 1.0)] * 2), 2.0)]
    assert [row["name"] for row in json.loads(as_json(rows))["rows"]] == ["name", "b"]
    assert as_table(rows).row_count == 4


def test_without_nixl_a_measurement_that_takes_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.runtime.transport.nixl.MODULES", ("no_such_nixl._api",))
    rows = measure(("idle", "homogeneous", "preparing"), 2)
    assert [(row.name, row.met) for row in rows] == [("not measured", None)] * 3
    assert all("no_such_nixl" in row.value for row in rows)
