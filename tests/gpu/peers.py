"""Decode processes of tests: one that reads until it is killed, one that reads once and checks every token."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from kvplan.bench.peer import request
from kvplan.calibrate.memories import memory_of
from kvplan.calibrate.peers import SECONDS, arrays, room
from kvplan.demo.processes import WorkerPipe
from kvplan.plan.types import Plan
from kvplan.runtime import DecodeWorker, Identity, Keys, Nixl, Sample, load_plan, views


def read_for_ever(
    line: WorkerPipe, path: str, blocks: int, mem_type: str, address: str, names: Sequence[str], *who: Any
) -> None:
    """Read these requests one after the other, and say so after the first."""
    plan, memory = _made(path, blocks, mem_type)
    with closing(decode(plan, blocks, memory, *who)) as worker:
        worker.connect(address, SECONDS)
        for name in names:
            worker.submit(request(plan, blocks, name), SECONDS).wait()
            line.say(name)


def read_once(line: WorkerPipe, path: str, blocks: int, mem_type: str, address: str, name: str, *who: Any) -> None:
    """Read a request and check every token. Raises if one differs."""
    plan, memory = _made(path, blocks, mem_type)
    with closing(decode(plan, blocks, memory, *who)) as worker:
        worker.connect(address, SECONDS)
        worker.submit(request(plan, blocks, name), SECONDS, checksum=Sample(every=1)).wait()
    line.say("right")


def decode(plan: Plan, blocks: int, memory: Any, identity: Identity, keys: Keys) -> DecodeWorker:
    """A decode worker of the plan over flat memory."""
    pool = views(plan.decode, 0, arrays(plan.decode, blocks, memory))
    return DecodeWorker(plan, 0, pool, Nixl("decode"), identity=identity, keys=keys)


def _made(path: str, blocks: int, mem_type: str) -> tuple[Plan, Any]:
    plan = load_plan(path)
    return plan, memory_of(mem_type).allocate(room(plan.decode, blocks))
