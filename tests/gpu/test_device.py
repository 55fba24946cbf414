"""Behaviour that only a device can show, in its memory; on a machine without one, the same tests run in host memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.demo.test_demo import needs_nixl
from tests.gpu.late import hold_late
from tests.gpu.memory import equal, there
from tests.gpu.peers import decode
from tests.runtime.helpers.memories import HostNixl, pretended

from kvplan.bench.peer import blocks_of, request
from kvplan.bench.stage import write_plan
from kvplan.calibrate.memories import CalibratedMemory
from kvplan.calibrate.peers import SECONDS, ServedPair, room, served, sizes
from kvplan.demo.processes import Processes
from kvplan.demo.run import engines
from kvplan.plan.types import Blocks, Plan
from kvplan.runtime import DecodeWorker, Memory, Nixl, Request, Sample, views
from kvplan.runtime.errors import ChecksumError
from kvplan.runtime.memory.device import shareable
from kvplan.runtime.staging.views import DeviceCopies, HostCopies

pytestmark = needs_nixl
MODEL, BYTES = "llama-3.1-8b", 4 << 20
TOKENS, HEADS = "tp=1,order=nhd", "tp=1,order=hnd"


@pytest.fixture(scope="module")
def kind() -> CalibratedMemory:
    return there()


def test_other_processes_can_map_the_memory(kind: CalibratedMemory) -> None:
    pool = kind.noise(1 << 20)
    assert shareable(pool.ctypes.data if kind.mem_type == "DRAM" else pool.data_ptr())


@pytest.mark.full
@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("strategy", ["direct", "unpack", "pack"])
def test_every_token_is_right(kind: CalibratedMemory, mode: str, strategy: str, tmp_path: Path) -> None:
    with met(kind, tmp_path, HEADS, strategy, mode, shuffled=True) as (worker, wanted, _):
        worker.submit(wanted, SECONDS, checksum=Sample(every=1)).wait()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["pull", "push"])
def test_equal_pages_are_the_same_bytes(kind: CalibratedMemory, mode: str, tmp_path: Path) -> None:
    with met(kind, tmp_path, TOKENS, "direct", mode) as (worker, wanted, memory):
        worker.submit(wanted, SECONDS).wait()
        assert equal(memory, kind.noise(len(memory)))


def test_strategies_write_the_same_bytes(kind: CalibratedMemory, tmp_path: Path) -> None:
    found = []
    for strategy in ("direct", "unpack", "pack"):
        with met(kind, tmp_path, HEADS, strategy, shuffled=True) as (worker, wanted, memory):
            worker.submit(wanted, SECONDS).wait()
            found.append(memory)
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])
    assert not equal(found[0], kind.noise(len(found[0])))


def test_wrong_bytes_are_found(kind: CalibratedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCopies if kind.mem_type == "DRAM" else DeviceCopies, "make", lambda *_, **__: None)
    with (
        met(kind, tmp_path, HEADS, "unpack") as (worker, wanted, _),
        pytest.raises(ChecksumError),
    ):
        worker.submit(wanted, SECONDS, checksum=Sample(every=1)).wait()


def test_nothing_moves_before_an_event(kind: CalibratedMemory, tmp_path: Path) -> None:
    path, plan = write_plan(str(tmp_path), MODEL, TOKENS, TOKENS)
    blocks, who = blocks_of(BYTES)(plan), engines("prefill", "decode")
    memory = kind.allocate(room(plan.decode, blocks))
    with Processes() as crew:
        member = crew.start("prefill", hold_late, path, blocks, kind.mem_type, *who["prefill"])
        address = member.hear(time.monotonic() + SECONDS)
        with closing(decode(plan, blocks, memory, *who["decode"])) as worker:
            worker.connect(address, SECONDS)
            worker.submit(request(plan, blocks, "late"), SECONDS).wait()
    assert equal(memory, kind.noise(len(memory)))


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_host_and_device_planes_in_one_worker(kind: CalibratedMemory, mode: str, tmp_path: Path) -> None:
    """Decode has half of its blocks on the device, and half in host memory; prefill has all on the device."""
    if mode == "push" and kind.mem_type == "DRAM":
        pytest.skip("there is no device: prefill, another process, writes to none")
    path, plan = write_plan(str(tmp_path), MODEL, TOKENS, f"{TOKENS},memory.attention=device+host")
    blocks = blocks_of(BYTES)(plan)
    device = kind.mem_type == "VRAM"
    with (
        served([ServedPair(path, blocks, ("one",))], kind.mem_type) as readers,
        nullcontext() if device else pretended(),
    ):
        pool = views(plan.decode, 0, halves(kind, plan, blocks))
        agent = (Nixl if device else HostNixl)("decode")
        with closing(DecodeWorker(plan, 0, pool, agent, identity=readers.identity, keys=readers.keys)) as worker:
            worker.connect(readers.addresses[0], SECONDS, mode=mode)
            worker.submit(in_no_order(request(plan, blocks, "one")), SECONDS, checksum=Sample(every=1)).wait()


def halves(kind: CalibratedMemory, plan: Plan, blocks: int) -> dict[str, Any]:
    """Every plane of decode, with its first blocks in the tested memory and the others in host memory."""
    found: dict[str, Any] = {}
    for name, stride, size in sizes(plan.decode, blocks):
        first = size // stride // 2 * stride
        found[name] = in_device(kind, kind.allocate(first), stride), np.ones(size - first, np.uint8)
    return found


def in_device(kind: CalibratedMemory, memory: Any, stride: int) -> Any:
    """Memory of a device, or host memory that pretends to be one's."""
    if kind.mem_type == "VRAM":
        return memory
    explicit = Memory(memory.ctypes.data, stride, len(memory) // stride, len(memory), "VRAM")
    KEPT.append(memory)
    return explicit


# Explicit memory keeps nothing alive.
KEPT = list[Any]()


@contextmanager
def met(
    kind: CalibratedMemory, folder: Path, order: str, strategy: str, mode: str = "auto", shuffled: bool = False
) -> Iterator[tuple[DecodeWorker, Request, Any]]:
    """A decode worker of `order`, connected to a process with tokens first; a request; and decode's memory."""
    path, plan = write_plan(str(folder), MODEL, TOKENS, order, strategy)
    blocks = blocks_of(BYTES)(plan)
    with served([ServedPair(path, blocks, ("one",))], kind.mem_type) as readers:
        worker, peer = readers.reader(0, mode=mode)
        assert mode in ("auto", peer.mode)
        wanted = request(plan, blocks, "one")
        yield worker, in_no_order(wanted) if shuffled else wanted, readers.memory


def in_no_order(wanted: Request) -> Request:
    """The same request with decode's blocks in another order."""
    ((name, blocks),) = wanted.decode.items()
    assert isinstance(blocks, Blocks)
    return replace(wanted, decode={name: Blocks(0, np.random.default_rng(5).permutation(blocks.ids))})
