"""The moves of a drawn request between workers, at once or in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.random_sides.draw import Case
from tests.runtime.helpers.ends import asked
from tests.runtime.transfer.test_chunks import grid

from kvplan.plan import request as requests
from kvplan.plan.layers import Layers
from kvplan.plan.types import Plan, Runs
from kvplan.runtime.transfer import chunks
from kvplan.runtime.transfer.chunks import ChunkCover
from kvplan.runtime.transfer.demand import DemandRules, demand

# A prefill worker, a decode worker, the runs by pair, and which layers, None for all.
Move = tuple[int, int, dict[str, Runs], Layers | None]


def sources(made: Plan, worker: int) -> list[int]:
    """The prefill workers that a decode worker reads from."""
    return sorted({read.worker for read in made.reads[worker]})


def whole(made: Plan, drawn: Case) -> Iterator[Move]:
    """The request at once."""
    checked = requests.check(made, asked(drawn.request), {}, {})
    for worker in range(len(made.reads)):
        wanted = demand(made, worker, checked)
        for theirs in sources(made, worker) if wanted.runs else ():
            yield theirs, worker, wanted.of(made.prefill.workers[theirs].shard), None


def fed(made: Plan, drawn: Case, split: bool) -> Iterator[Move]:
    """The request in chunks of tokens, or of tokens and layers."""
    checked = requests.check(made, asked(drawn.request), {}, {})
    cover = ChunkCover(made, checked)
    for given in grid(Random(drawn.seed), made, checked, split):
        if (chunk := chunks.received(made, checked, given, {}, cover)) is None:
            continue
        for worker in range(len(made.reads)):
            for theirs in sources(made, worker):
                wanted = chunks.part(DemandRules(made, worker), checked, chunk, theirs)
                if wanted.runs:
                    yield theirs, worker, wanted.of(made.prefill.workers[theirs].shard), chunk.layers
