"""The pairs that are timed: their plans, in files, and the size of each one's transfer."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.plan import planes as names

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled

DEPLOYMENT = "calibrate.yaml"
# Descriptors of one transfer: enough to measure the cost of one, few enough for many turns.
MOST = 65536


@dataclass(frozen=True, slots=True)
class TimedPair:
    """Two sides of one cache in one plane: the path of their plan, the blocks and bytes of a transfer."""

    path: str
    blocks: int
    bytes: int


def compiled(folder: Path, size: int) -> list[TimedPair]:
    """Compile the pairs into `folder`, each to move at most `size` bytes; the pair of one descriptor comes first."""
    from kvplan.deploy import jobs

    deployment = Path(str(files("kvplan.calibrate").joinpath(DEPLOYMENT)))
    plans = jobs.compiled(deployment).values()
    return [_written(folder / f"pair_{number}.py", made, size) for number, made in enumerate(plans)]


def _written(path: Path, made: Compiled, size: int) -> TimedPair:
    path.write_text(made.text)
    (plane,), (moves,) = names.planes(made.plan.decode.workers[0]), made.facts.moves
    blocks = max(1, min(size // plane.stride, MOST // moves.spans))
    return TimedPair(str(path), blocks, blocks * plane.stride)
