"""Preparing both sides of a pair: the same time and memory for a thousand blocks and for a million."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvplan.bench.report import Row, within
from kvplan.bench.sample import interleave
from kvplan.bench.stage import plan_of, pool, reserve
from kvplan.calibrate.peers import room

if TYPE_CHECKING:
    from kvplan.plan.types import Plan
    from kvplan.runtime.transfer.prepared import PreparedLink

AREA = "preparing a peer"
MODEL, SIDES = "llama-3.3-70b", ("tp=8", "tp=4")
FEW, MANY = 1_000, 1_000_000
ALIKE = 1.25


def measure(pairs: int) -> list[Row]:
    """Compare a million blocks with a thousand, through NIXL, on reserved address space that is never touched."""
    plan = plan_of(MODEL, *SIDES)
    few, many = preparer(plan, FEW), preparer(plan, MANY)
    row = within(AREA, f"{MANY:,} blocks against {FEW:,}", interleave(many, few, pairs), ALIKE)
    row.details["peak_bytes"] = {FEW: peak(few), MANY: peak(many)}
    return [row]


def preparer(plan: Plan, blocks: int) -> Callable[[], None]:
    """Return a function that prepares and releases decode worker 0's reads from prefill worker 0, for these pools."""
    prepare = linker(plan, blocks)
    return lambda: prepare().release()


def linker(plan: Plan, blocks: int) -> Callable[[], PreparedLink]:
    """Return a function that prepares decode worker 0's reads from prefill worker 0, for pools of `blocks` blocks."""
    from kvplan.runtime.transfer.prepare import link
    from kvplan.runtime.transfer.prepared import PreparedLink
    from kvplan.runtime.transport.nixl import Nixl

    ends = plan.prefill, plan.decode
    spaces = [reserve(room(side, blocks)) for side in ends]
    pools = [pool(side, 0, blocks, space.base) for side, space in zip(ends, spaces, strict=True)]
    theirs, ours = Nixl("prefill"), Nixl("decode")
    for agent, memory in zip((theirs, ours), pools, strict=True):
        agent.register(memory.geometry.regions, "DRAM")
    peer = ours.add_peer(theirs.metadata())

    def once(keep: object = (spaces, theirs)) -> PreparedLink:
        ends = PreparedLink(0, 0, peer, False, pools[0].geometry, pools[1].geometry)
        return link(plan, ends, ours)

    return once


def peak(action: Callable[[], None]) -> int:
    """Return the most bytes that Python and numpy held at once during `action`."""
    tracemalloc.start()
    action()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most
