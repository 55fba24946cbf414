"""The fleet that is measured is the one that is simulated: the same requests, and all of them arrive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.demo.test_demo import needs_nixl

from kvplan.bench import real_fleet, simulating
from kvplan.bench.real_fleet import FleetRun, Moved
from kvplan.bench.stage import library


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "REQUESTS", 8)


@needs_nixl
@pytest.mark.full  # four processes, each with an agent: `demo` and `cluster` start the same in `make test`.
@pytest.mark.usefixtures("few")
def test_all_requests_of_a_real_fleet_arrive(tmp_path: Path) -> None:
    made = simulating.compiled(str(tmp_path))
    arrivals = simulating.trace(60_000)
    schedule = simulating.scheduled(arrivals, "run")
    with real_fleet.real_fleet(str(tmp_path / "plan.py"), [schedule]) as decodes:
        real = real_fleet.run_once(decodes, schedule)
    assert len(real.moved) == len(arrivals) == 8
    assert all(moved.arrived > moved.submitted >= 0 for moved in real.moved)
    assert 0 < real.share <= 1
    profile = library().machine(library().default_machine)
    simulated = simulating.simulated_run(made, profile, arrivals)
    assert len(simulated.moved) == 8
    slow = simulating.simulated_run(made, simulating.slowed(profile, 0.5), arrivals)
    assert simulating.FIGURES["requests a second"](slow.moved) < simulating.FIGURES["requests a second"](
        simulated.moved
    )


def test_requests_of_a_trace_are_mixed_and_fit(few: None) -> None:
    lengths = {arrival.input for arrival in simulating.trace(1200)}
    assert len(lengths) > 4
    assert 16 <= min(lengths) <= max(lengths) <= simulating.LONGEST


def test_a_figure_is_within_where_the_middle_run_is() -> None:
    run = FleetRun(tuple(Moved(0.0, 0.01 * number) for number in range(1, 11)), 1.0)
    late = replace(run, moved=tuple(Moved(0.0, 1.5 * each.arrived) for each in run.moved))
    met = {row.name: row.met for row in simulating.rows_of("load", [run] * 3, [run, late, run])}
    assert len(met) == len(simulating.FIGURES)
    assert all(met.values())
    assert not any(row.met for row in simulating.rows_of("load", [run] * 3, [run, late, late]))
