"""An engine outlives a peer that is killed while bytes move, and its memory and device with it."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from tests.demo.test_demo import needs_nixl
from tests.gpu.memory import equal, there
from tests.gpu.peers import decode, read_for_ever, read_once

from kvplan.bench.peer import blocks_of, request
from kvplan.bench.stage import write_plan
from kvplan.calibrate.peers import SECONDS, ServedPair, arrays, room, serve
from kvplan.demo.processes import Processes, WorkerHandle
from kvplan.demo.run import engines
from kvplan.runtime import Nixl, PrefillWorker, Sample, views
from kvplan.runtime.errors import HandshakeError, TransferError

pytestmark = [needs_nixl, pytest.mark.full]
TOKENS, HEADS = "tp=1,order=nhd", "tp=1,order=hnd"
MODEL, BYTES, TIMES, TIMEOUT = "llama-3.1-8b", 8 << 20, 3, 5.0
NAMES = tuple(map(str, range(300)))


@pytest.mark.parametrize("strategy", ["direct", "unpack"])
def test_prefill_outlives_readers_that_are_killed(strategy: str, tmp_path: Path) -> None:
    kind, (path, plan) = there(), write_plan(str(tmp_path), MODEL, TOKENS, HEADS, strategy)
    blocks, who = blocks_of(BYTES)(plan), engines("prefill", "decode")
    memory, (identity, keys) = kind.noise(room(plan.prefill, blocks)), who["prefill"]
    pool = views(plan.prefill, 0, arrays(plan.prefill, blocks, memory))
    with closing(PrefillWorker(plan, 0, pool, Nixl("prefill"), identity=identity, keys=keys)) as worker:
        worker.announce([worker.address])
        known = path, blocks, kind.mem_type, worker.address
        for turn in range(TIMES):
            names = [f"{turn}-{name}" for name in NAMES]
            for name in names:
                worker.hold(name)
            with Processes() as crew:
                killed(crew.start("reader", read_for_ever, *known, names, *who["decode"]), 0.02 * turn)
        worker.hold("last")
        with Processes() as crew:
            reader = crew.start("reader", read_once, *known, "last", *who["decode"])
            assert reader.hear(time.monotonic() + SECONDS) == "right"
    assert equal(memory, kind.noise(len(memory)))


@pytest.mark.parametrize(("strategy", "mode"), [("direct", "push"), ("unpack", "push"), ("direct", "pull")])
def test_decode_outlives_prefill_that_is_killed(strategy: str, mode: str, tmp_path: Path) -> None:
    kind, (path, plan) = there(), write_plan(str(tmp_path), MODEL, TOKENS, HEADS, strategy)
    blocks, who = blocks_of(BYTES)(plan), engines("prefill", "decode")
    with closing(decode(plan, blocks, kind.allocate(room(plan.decode, blocks)), *who["decode"])) as worker:
        for turn in range(TIMES + 1):
            with Processes() as crew:
                pair = ServedPair(path, blocks, ("0", "1"))
                member = crew.start("prefill", serve, (pair,), kind.mem_type, *who["prefill"])
                (address,) = member.hear(time.monotonic() + SECONDS)
                peer = worker.connect(address, SECONDS, mode=mode)
                worker.submit(request(plan, blocks, "0"), SECONDS, checksum=Sample(every=1)).wait()
                transfer = worker.submit(request(plan, blocks, "1"), TIMEOUT)
                time.sleep(0.0005 * turn)
                kill(member)
                with suppress(TransferError):
                    transfer.wait()
                # Unless nothing is left of it that may still write.
                with suppress(HandshakeError):
                    worker.drop(peer.name, dead=True)
                until = time.monotonic() + SECONDS
                # Bytes on their way may land for some time yet.
                while worker.quarantined() and time.monotonic() < until:
                    worker.run_once()


def killed(member: WorkerHandle, seconds: float) -> None:
    """Kill a reader so many seconds after its first request."""
    member.hear(time.monotonic() + SECONDS)
    time.sleep(seconds)
    kill(member)


def kill(member: WorkerHandle) -> None:
    """Kill a process as the system does when memory is short."""
    assert isinstance(member.runner, BaseProcess)
    member.runner.kill()
    member.runner.join(SECONDS)
