"""Pictures of simulated candidates: the distribution of times to the first token, and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvplan.traffic.figures import PARTS, CandidateFigures
from kvplan.traffic.runs import RequestEnd, SimulatedRun

SUFFIXES = (".svg", ".png")
# Inches of a panel, of a bar, and of the space around them.
WIDTH, BAR, AROUND = 5.0, 0.5, 1.8
COLUMNS = 3
# Colours of the parts, different from the lines of the other panel.
COLOURS = {"queue": "#cccccc", "compute": "#999999", "room": "#e8c547", "transfer": "#3d5a80", "step": "#98c1d9"}
# A candidate's figures, and its run.
ComparedRun = tuple[CandidateFigures, SimulatedRun]


def draw(compared: Sequence[ComparedRun], path: Path) -> None:
    """Draw both panels, side by side, into the file `path`; equal input gives an equal file."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    matplotlib.rcParams |= {"svg.hashsalt": "kvplan", "svg.fonttype": "none", "font.size": 8}
    from matplotlib import pyplot

    height = AROUND + max(1.6, BAR * len(compared))
    figure, (spread, parts) = pyplot.subplots(1, 2, figsize=(2 * WIDTH, height), layout="constrained")
    _draw_spread(spread, compared)
    _draw_parts(parts, [figures for figures, _ in compared])
    figure.legend(*spread.get_legend_handles_labels(), loc="outside upper center", ncols=COLUMNS)
    figure.legend(*parts.get_legend_handles_labels(), loc="outside lower right", ncols=len(PARTS))
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _draw_spread(panel: Any, compared: Sequence[ComparedRun]) -> None:
    """Draw the share of requests that have their first token within a time."""
    for figures, run in compared:
        times = sorted((r.first - r.arrived) / 1000 for r in run.requests if r.end is RequestEnd.DONE)
        panel.step(times, np.arange(1, len(times) + 1) / max(1, len(run.requests)), label=figures.name)
    panel.set(title="time to the first token", xlabel="ms", ylabel="share of requests", ylim=(0, 1.02), xscale="log")
    panel.grid(visible=True, alpha=0.3)


def _draw_parts(panel: Any, candidates: Sequence[CandidateFigures]) -> None:
    """Draw the mean parts of that time, a bar for each candidate, the first on top."""
    names = [each.name for each in candidates]
    left = np.zeros(len(candidates))
    for part, colour in COLOURS.items():
        sizes = np.nan_to_num([getattr(each.parts, part) for each in candidates])
        panel.barh(names, sizes, left=left, label=PARTS[part], color=colour)
        left += sizes
    panel.invert_yaxis()
    panel.set(title="what it is made of, in the mean", xlabel="ms")
    panel.grid(visible=True, axis="x", alpha=0.3)
