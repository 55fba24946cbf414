"""The hardest cases with caches in the host's memory, in a device's, and in both, from worker to worker."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.demo.test_demo import needs_nixl
from tests.end_to_end.asking import requests
from tests.end_to_end.build import sides
from tests.end_to_end.hardest import HARDEST
from tests.end_to_end.memory import PADDED, refill, stamp
from tests.end_to_end.worlds import SECONDS, STAGE, World, move, runtime_request, world
from tests.runtime.helpers.memories import HostNixl, in_memories, pretended
from tests.shares import later

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.plan.spans import pick
from kvplan.plan.types import Plan
from kvplan.runtime import DecodeWorker, Sample
from kvplan.runtime.errors import ChecksumError, TransportError
from kvplan.runtime.transport.inmemory import Hub, InMemory

WAYS = [
    ("direct", "pull"),
    ("direct", "push"),
    ("unpack", "pull"),
    ("pack", "push"),
    ("pack", "pull"),
    ("unpack", "push"),
]
CASES = [(name, *way) for name in HARDEST for way in WAYS]
NOW = [(name, *WAYS[number % len(WAYS)]) for number, name in enumerate(HARDEST)]


def drawn(name: str, strategy: str) -> tuple[Plan, tuple[BoundSide, BoundSide]]:
    """A case with its caches in random memories, always the same ones."""
    random = Random(name)
    prefill, decode = (in_memories(side, random) for side in sides(HARDEST[name]))
    return compile_bound(prefill, decode, {"strategy": strategy}).plan, (prefill, decode)


@pytest.mark.parametrize(("name", "strategy", "mode"), [*NOW, *later(case for case in CASES if case not in NOW)])
def test_every_byte_and_every_checksum(name: str, strategy: str, mode: str) -> None:
    plan, both = drawn(name, strategy)
    asked = requests(HARDEST[name])
    with pretended(), world(plan, both, list(asked.values()), mode=mode, stage_bytes=STAGE) as made:
        for request in ("cold", "prefix hit"):
            move(made, asked[request], request)
            summed(made, asked[request], f"{request}, summed")


def summed(made: World, request: Any, name: str) -> None:
    """The request once more, with checksums of every token on both sides."""
    wanted = runtime_request(request, name)
    for worker, _ in made.prefill:
        worker.hold(name, wanted.prefill)
    for reader, _ in made.decode:
        assert reader.submit(wanted, SECONDS, checksum=Sample(every=1)).wait().state == "done"


CASE = next(name for name in HARDEST if any("+" in cache.memory for cache in drawn(name, "direct")[1][1].caches))


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_bytes_that_land_in_the_other_memory_are_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that counts further blocks from the first memory's own first block."""
    plan, both = drawn(CASE, "direct")
    asked = requests(HARDEST[CASE])["cold"]
    monkeypatch.setattr("kvplan.runtime.transfer.prepared.PreparedRead.own", misplaced)
    with pretended(), world(plan, both, [asked], mode=mode) as made:
        for worker, memory in made.prefill:
            refill(memory, PADDED)
            stamp(memory, made.regions, asked.prefill)
            worker.hold("r", runtime_request(asked, "r").prefill)
        assert any(is_refused(reader, runtime_request(asked, "r")) for reader, _ in made.decode)


def is_refused(reader: DecodeWorker, request: Any) -> bool:
    """Whether checksums of every token find a request wrong."""
    try:
        reader.submit(request, SECONDS, checksum=Sample(every=1)).wait()
    except ChecksumError:
        return True
    return False


def misplaced(entry: Any, runs: Any) -> Any:
    if entry.within is None:
        return runs
    found = pick(runs, entry.moves(runs))
    (prefill, _), (decode, _) = entry.within
    turned = (found.decode_block - decode + 1) % entry.blocks[1]
    return found._replace(prefill_block=found.prefill_block - prefill, decode_block=turned)


def test_a_transport_without_a_device_refuses_the_worker() -> None:
    """Before it announces anything: who has no device has no memory of one."""
    plan, both = drawn(CASE, "direct")
    asked = requests(HARDEST[CASE])["cold"]
    hub = Hub()
    with (
        pytest.raises(TransportError, match="copies host memory only, not VRAM"),
        world(plan, both, [asked], lambda name: InMemory(hub, name)),
    ):
        pass


def test_a_peer_whose_side_declares_other_memory_has_another_digest() -> None:
    plan, (prefill, decode) = drawn(CASE, "direct")
    plain = replace(decode, caches=tuple(replace(cache, memory="") for cache in decode.caches))
    other = compile_bound(prefill, plain).plan
    assert other.decode.digest != plan.decode.digest
    assert other.prefill.digest == plan.prefill.digest


@needs_nixl
@pytest.mark.parametrize("mode", ["pull", "push"])
def test_every_byte_and_every_checksum_over_nixl(mode: str) -> None:
    """Each worker registers twice; each request is several transfers."""
    plan, both = drawn(CASE, "direct")
    asked = requests(HARDEST[CASE])
    agents = list[HostNixl]()

    def agent(name: str) -> HostNixl:
        agents.append(HostNixl(name, telemetry=True))
        return agents[-1]

    with pretended(), world(plan, both, list(asked.values()), agent, mode) as made:
        assert any(len(one.types) == 2 for one in agents)
        for request in ("cold", "prefix hit"):
            move(made, asked[request], request)
            summed(made, asked[request], f"{request}, summed")
