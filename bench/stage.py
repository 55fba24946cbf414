"""Plans and peers for the measurements: no memory is touched if only addresses matter."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kvplan.calibrate.peers import room, sizes

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.plan.block_tables import Tables
    from kvplan.plan.types import Plan, Side
    from kvplan.runtime.memory.register import Pool
    from kvplan.runtime.transfer.prepared import PreparedLink
    from kvplan.runtime.transport.base import Transport

TOP, GAP = 1 << 40, 1 << 30


@cache
def library() -> Library:
    """Return the shipped layouts."""
    from kvplan.dsl.library import load

    return load()


def plan_of(model: str, prefill: str, decode: str) -> Plan:
    """Return the plan of a pair, loaded from its text like by an engine."""
    with TemporaryDirectory() as folder:
        return write_plan(folder, model, prefill, decode)[1]


def write_plan(folder: str, model: str, prefill: str, decode: str, strategy: str = "direct") -> tuple[str, Plan]:
    """Compile a pair into a file of `folder`; return its path and the plan."""
    from kvplan.compiler.api import compile_pair
    from kvplan.runtime import load_plan

    path = Path(folder) / "plan.py"
    path.write_text(compile_pair(library(), model, prefill, decode, {"strategy": strategy}).text)
    return str(path), load_plan(path)


def nixl_missing() -> str:
    """Say why NIXL cannot be used here, empty if it can."""
    from kvplan.runtime.errors import NixlMissingError
    from kvplan.runtime.transport.nixl import api

    try:
        api()
    except NixlMissingError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Reserved address space that is never touched, from `base` on; `owner` keeps it."""

    base: int
    owner: object


def reserve(size: int) -> Reserved:
    """Reserve `size` bytes of address space without memory behind them."""
    import numpy as np

    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    area = mmap.mmap(-1, size, flags=flags)
    return Reserved(np.frombuffer(area, np.uint8).ctypes.data, area)


def pool(side: Side, worker: int, blocks: int, base: int) -> Pool:
    """Return a pool of `blocks` logical blocks whose planes are consecutive from address `base`."""
    from kvplan.runtime.memory.arrays import Memory
    from kvplan.runtime.memory.register import views

    whole, at = (base, room(side, blocks, worker)), base
    arrays: dict[str | tuple[str, str], Memory] = {}
    for name, stride, size in sizes(side, blocks, worker):
        arrays[name] = Memory(at, stride, size // stride, size, allocation=whole)
        at += size
    return views(side, worker, arrays)


def filled(side: Side, worker: int, tokens: int) -> Pool:
    """Return a pool with separate memory for `tokens` tokens, full of noise."""
    import numpy as np

    from kvplan.plan import planes as names
    from kvplan.runtime.memory.register import views

    random, count = np.random.default_rng(7), {group.name: -(-tokens // group.kernel) for group in side.groups}
    planes = names.planes(side.workers[worker])
    return views(side, worker, {p.name: random.integers(0, 256, (count[p.group], p.stride), np.uint8) for p in planes})


def shuffled(side: Side, tokens: int) -> Tables:
    """Return the blocks of `tokens` tokens, in random order."""
    import numpy as np

    from kvplan.plan.types import Blocks

    random = np.random.default_rng(7)
    return {group.name: Blocks(0, random.permutation(-(-tokens // group.tokens))) for group in side.groups}


def here(plan: Plan, blocks: int, worker: int = 0) -> PreparedLink:
    """Prepare decode worker 0's reads from a prefill worker, over made-up addresses that nothing reads."""
    from kvplan.runtime.transport.inmemory import Hub, InMemory

    prefill = pool(plan.prefill, worker, blocks, TOP)
    decode = pool(plan.decode, 0, blocks, TOP + room(plan.prefill, blocks, worker) + GAP)
    hub = Hub()
    return between(plan, prefill, decode, InMemory(hub), InMemory(hub))


def between(plan: Plan, prefill: Pool, decode: Pool, theirs: Transport, ours: Transport) -> PreparedLink:
    """Register both pools and prepare the reads, all in this process."""
    from kvplan.runtime.transfer.prepare import link
    from kvplan.runtime.transfer.prepared import PreparedLink

    theirs.register(prefill.geometry.regions, "DRAM")
    ours.register(decode.geometry.regions, "DRAM")
    peer = ours.add_peer(theirs.metadata())
    ends = PreparedLink(prefill.worker, decode.worker, peer, False, prefill.geometry, decode.geometry)
    return link(plan, ends, ours)
