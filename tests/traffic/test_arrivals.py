"""Arrivals: traces as they are published, every mistake in one with its line, and arrivals that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.dsl.schema.fleet import PoissonTraffic, Traffic
from kvplan.dsl.text.diagnostics import DslError
from kvplan.traffic.arrivals import Arrival, drawn, traced

# Two lines as Mooncake publishes them, one of a later release with more keys, and one without hashes.
LINES = """\
{"timestamp": 27000, "input_length": 1300, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 30535, "input_length": 1024, "output_length": 26, "hash_ids": [46, 47]}

{"timestamp": 30535.5, "input_length": 600, "output_length": 0, "hash_ids": ["a", "b"], "type": "text", "turn": 1}
{"timestamp": 40000, "input_length": 1, "output_length": 9}
"""
GOOD = '{"timestamp": 5, "input_length": 1, "output_length": 1}'


def trace(folder: Path, text: str, first: int | None = None, percent: int = 100) -> tuple[Arrival, ...]:
    (folder / "trace.jsonl").write_text(text)
    return traced(Traffic(trace=str(folder / "trace.jsonl"), first=first, percent=percent))


def test_a_trace_begins_at_nought_and_its_last_block_is_whole(tmp_path: Path) -> None:
    assert trace(tmp_path, LINES) == (
        Arrival(0.0, 1300, 52, (46, 47)),
        Arrival(3_535_000.0, 1024, 26, (46, 47)),
        Arrival(3_535_500.0, 600, 0, ("a",)),
        Arrival(13_000_000.0, 1, 9),
    )


def test_some_of_a_trace_at_another_pace(tmp_path: Path) -> None:
    assert [a.at for a in trace(tmp_path, LINES, first=2, percent=200)] == [0.0, 1_767_500.0]
    assert trace(tmp_path, "") == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        (GOOD.replace("5", '"5"'), "timestamp must be milliseconds"),
        (GOOD.replace("5", "true"), "timestamp must be milliseconds"),
        (GOOD.replace("5", "-1"), "timestamp must be milliseconds"),
        (GOOD.replace("5", "NaN"), "timestamp must be milliseconds"),
        (GOOD.replace("5", "4"), "goes back"),
        (GOOD.replace('"input_length": 1', '"input_length": 0'), "input_length must be a whole number from 1"),
        (GOOD.replace('"input_length": 1, ', ""), "input_length must be a whole number from 1, not None"),
        (GOOD.replace('"output_length": 1', '"output_length": 1.5'), "output_length must be a whole number"),
        (GOOD.replace("}", ', "hash_ids": 7}'), "hash_ids must be a list"),
        (GOOD.replace("}", ', "hash_ids": [[1]]}'), "hash_ids must be a list"),
        (GOOD.replace("}", ', "hash_ids": [1, 2, 1]}'), "hash_ids has an id twice"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_told_with_its_place(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(DslError) as error:
        trace(tmp_path, f"{GOOD}\n\n{line}\n{GOOD}\n")
    (found,) = error.value.diagnostics
    assert (found.code, found.span.line) == ("S032", 3)
    assert found.span.path.endswith("trace.jsonl")
    assert said in found.message
    assert "timestamp" in found.help


def test_drawn_arrivals_are_as_asked_for_and_the_same_for_a_seed() -> None:
    traffic = PoissonTraffic(per_minute=600, requests=4000, input=1000, output=100, seed=3)
    arrivals = drawn(traffic)
    assert arrivals == drawn(traffic) != drawn(PoissonTraffic(600, 4000, 1000, 100, 4))
    assert [a.at for a in arrivals] == sorted(a.at for a in arrivals)
    assert arrivals[-1].at / 4000 == pytest.approx(100_000, rel=0.1)
    assert sum(a.input for a in arrivals) / 4000 == pytest.approx(1000, rel=0.1)
    assert sum(a.output for a in arrivals) / 4000 == pytest.approx(100, rel=0.1)
