"""Times of a real fleet of two prefill and two decode engines against its simulation.

The machine's profile is measured in turns with the fleet, by a clock that stops while other processes have the core.
The share of cores that decode had during transfers is measured, too, and slows the profile down. The calmest
runs count.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kvplan.bench.predicting import SIZE, profile_of
from kvplan.bench.real_fleet import (
    BLOCKS,
    ENGINES,
    SCHEDSTAT,
    FleetRequest,
    FleetRun,
    Moved,
    real_fleet,
    run_once,
    working,
)
from kvplan.bench.report import Row, skipped
from kvplan.bench.stage import library, nixl_missing

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.demo.processes import WorkerHandle
    from kvplan.dsl.schema.machine import MachineProfile
    from kvplan.traffic.arrivals import Arrival

AREA = "a simulated fleet"
NEAR = 0.2
MODEL, SIDE = "qwen3-0.6b", "tp=1"
LONGEST = 1024
# The number of requests, and their arrivals per minute: one load that rarely overlaps, and one above capacity.
REQUESTS = 80
LOADS = {"rarely two at once": 1200, "as fast as it can be": 60_000}
# The repetitions of each load, and how many of them count: those in which decode waited least for a core.
TURNS, COUNTED = 9, 5


def measure(pairs: int) -> list[Row]:
    """Compare transfer times (median, p90) and requests a second of real and simulated engines: within 20 %."""
    if why := missing():
        return [skipped(AREA, why)]
    traffic = {name: trace(per_minute) for name, per_minute in LOADS.items()}
    with TemporaryDirectory() as folder:
        made = compiled(folder)
        runs = [(name, turn) for turn in range(1 + TURNS) for name in traffic]
        schedules = {run: scheduled(traffic[run[0]], f"{run[0]} {run[1]}") for run in runs}
        with real_fleet(str(Path(folder) / "plan.py"), schedules.values()) as decodes:
            real_runs, profile = measured(decodes, schedules)
    rows = []
    for name, arrivals in traffic.items():
        real = calmest([real_runs[name, turn] for turn in range(1, 1 + TURNS)])
        rows += rows_of(name, real, [simulated_run(made, slowed(profile, run.share), arrivals) for run in real])
    return rows


def calmest(runs: Sequence[FleetRun]) -> list[FleetRun]:
    """Return the runs in which decode waited least for a core."""
    return sorted(runs, key=lambda run: run.share)[-COUNTED:]


def missing() -> str:
    """Say why this cannot be measured here, empty if it can."""
    if find_spec("simpy") is None:
        return "simpy is not installed"
    return nixl_missing() or ("" if Path(SCHEDSTAT.format("self")).exists() else "the system does not tell who waits")


def trace(per_minute: int) -> tuple[Arrival, ...]:
    """Return arrivals of mixed lengths, through a trace in the public format."""
    from kvplan.dsl.schema.fleet import PoissonTraffic, Traffic
    from kvplan.traffic.arrivals import drawn, traced

    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        drawn_ = drawn(PoissonTraffic(per_minute, REQUESTS, LONGEST // 3, 1, seed=7))
        lines = [
            {"timestamp": a.at / 1000, "input_length": min(LONGEST, 16 + a.input), "output_length": 1} for a in drawn_
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return traced(Traffic(trace=str(path)))


def scheduled(arrivals: Sequence[Arrival], run: str) -> list[list[FleetRequest]]:
    """Return requests by decode engine; both kinds of engines take turns."""
    every = [
        FleetRequest(f"{run} {number}", arrival.at / 1e6, arrival.input, number % ENGINES)
        for number, arrival in enumerate(arrivals)
    ]
    return [every[number::ENGINES] for number in range(ENGINES)]


def slowed(profile: MachineProfile, share: float) -> MachineProfile:
    """Return the profile of a machine on which a working thread has a core for that share of the time.

    The fixed time of a transfer is mostly waiting for the other side, which was measured as it is; the extra time of a
    cold one is work.
    """
    return replace(
        profile,
        slice_us=profile.slice_us / share,
        descriptor_us=profile.descriptor_us / share,
        wire=profile.wire * share,
        cold_us=profile.cold_us / share,
    )


def simulated_run(made: Compiled, profile: MachineProfile, arrivals: Sequence[Arrival]) -> FleetRun:
    """Simulate the same fleet: prompts take no time, and decode frees its blocks when they are filled."""
    from kvplan.dsl.schema.fleet import DecodeFigures, PrefillFigures
    from kvplan.runtime import Limits
    from kvplan.traffic.loads import loads_of
    from kvplan.traffic.runs import SimulatedPair
    from kvplan.traffic.simulate import simulated

    block = made.plan.decode.groups[0].tokens
    prefill = PrefillFigures(ENGINES, 1 << 30, tokens_per_s=1 << 40, lease_s=3600)
    decode = DecodeFigures(ENGINES, BLOCKS * block, us_per_token=0, sequences=1 << 20)
    loads = loads_of(made.plan, profile, "pull")
    pair = SimulatedPair(
        prefill, decode, block, block, loads, "pull", 1, "round_robin", Limits(), os.cpu_count(), profile
    )
    run = simulated(pair, [replace(arrival, output=0) for arrival in arrivals])
    return FleetRun(tuple(Moved(each.submitted / 1e6, each.moved / 1e6) for each in run.requests), 1.0)


def compiled(folder: str) -> Compiled:
    """Compile the plan of the fleet into `plan.py`."""
    from kvplan.compiler.api import compile_pair

    made = compile_pair(library(), MODEL, SIDE, SIDE)
    (Path(folder) / "plan.py").write_text(made.text)
    return made


def measured(
    decodes: Sequence[WorkerHandle], schedules: dict[tuple[str, int], list[list[FleetRequest]]]
) -> tuple[dict[tuple[str, int], FleetRun], MachineProfile]:
    """Return every run of the fleet, and the machine's profile, which is measured in turns with them."""
    from kvplan.calibrate.measure import calibrated

    runs: dict[tuple[str, int], FleetRun] = {}
    left = deque(schedules.items())
    each = -(-len(schedules) // (1 + TURNS))

    def watch(turns: Iterable[int]) -> Iterator[int]:
        for turn in turns:
            for run, schedule in [left.popleft() for _ in range(min(each, len(left)))]:
                runs[run] = run_once(decodes, schedule)
            yield turn

    calibration = calibrated("DRAM", 1 + TURNS, SIZE, watch, working)
    return runs, profile_of(calibration)


def rows_of(name: str, real: Sequence[FleetRun], simulated: Sequence[FleetRun]) -> list[Row]:
    """Return a row for each figure; every run is compared with its simulation on the cores that it had."""
    rows, shares = [], [run.share for run in real]
    for figure, of in FIGURES.items():
        took, predicted = [of(run.moved) for run in real], [of(run.moved) for run in simulated]
        ratios = sorted(each / took_ for each, took_ in zip(predicted, took, strict=True))
        middle = median(ratios)
        rows.append(
            Row(
                AREA,
                f"{name}, {figure}",
                f"{median(took):.4g}, simulated {middle:.2f}x of it",
                f"within {100 * NEAR:.0f} %",
                abs(middle - 1) <= NEAR,
                f"{ratios[0]:.2f}..{ratios[-1]:.2f}",
                len(took),
                {"measured": took, "simulated": predicted, "shares": shares},
            )
        )
    return rows


def _part(moved: Sequence[Moved], tenth: int) -> float:
    """Return the milliseconds of the transfer at this tenth of all."""
    return 1e3 * quantiles([each.arrived - each.submitted for each in moved], n=10, method="inclusive")[tenth - 1]


def _rate(moved: Sequence[Moved]) -> float:
    """Return requests a second."""
    return len(moved) / (max(each.arrived for each in moved) - min(each.submitted for each in moved))


FIGURES = {
    "median ms of a transfer": lambda moved: _part(moved, 5),
    "p90 ms of a transfer": lambda moved: _part(moved, 9),
    "requests a second": _rate,
}
