"""The pairs that are timed: their plans, in files, and how much of each moves in one transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvplan.plan import planes as names

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled
    from kvplan.plan.types import Plan, Side
    from kvplan.runtime import Request

DEPLOYMENT = "calibrate.yaml"
# Requests of one transfer: enough to tell what each takes, few enough for many turns.
MOST = 16384


@dataclass(frozen=True, slots=True)
class TimedPair:
    """Two sides of one cache in one plane of one worker: the path of their plan, the blocks that a transfer moves."""

    path: str
    blocks: int


def compiled(folder: Path, size: int) -> list[TimedPair]:
    """The pairs, their plans written into `folder`, each to move `size` bytes at most; that of one request first."""
    from kvplan.cli import jobs

    deployment = Path(str(files("kvplan.cli.calibrate").joinpath(DEPLOYMENT)))
    outcome = jobs.run(*jobs.opened([deployment], {}))
    for _, error in outcome.refused:
        raise error
    return [_written(folder / f"pair_{number}.py", made, size) for number, made in enumerate(outcome.plans.values())]


def _written(path: Path, made: Compiled, size: int) -> TimedPair:
    path.write_text(made.text)
    (plane,), (moves,) = names.planes(made.plan.decode.workers[0]), made.facts.moves
    return TimedPair(str(path), max(1, min(size // plane.stride, MOST // moves.spans)))


def planes_of(side: Side, blocks: int, memory: Any) -> dict[str, Any]:
    """The first `blocks` blocks of a side's plane, in `memory`: flat bytes of numpy's or torch's."""
    (plane,) = names.planes(side.workers[0])
    return {plane.name: memory[: blocks * plane.stride].reshape(blocks, plane.stride)}


def room(pairs: Sequence[TimedPair]) -> int:
    """Bytes that the largest of the pairs takes on either side."""
    from kvplan.plan.loader import load_plan

    plans = ((pair.blocks, load_plan(pair.path)) for pair in pairs)
    ends = ((blocks, side) for blocks, plan in plans for side in (plan.prefill, plan.decode))
    return max(blocks * plane.stride for blocks, side in ends for plane in names.planes(side.workers[0]))


def request(plan: Plan, blocks: int, name: str) -> Request:
    """The first `blocks` blocks on both sides, in order."""
    from kvplan.runtime import Blocks, Request

    (group,) = plan.decode.groups
    tables = {group.name: Blocks(0, np.arange(blocks, dtype=np.int64))}
    return Request(name, (0, blocks * group.tokens), tables, tables)
