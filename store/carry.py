"""A plan carried out between two sides whose memory is all in this process, by the links that workers have, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kvplan.plan.blocks import NO_RUNS
from kvplan.plan.types import Plan, Runs
from kvplan.runtime.clock import now
from kvplan.runtime.errors import DeadlineError, HandleError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.transfer.gather import IndexScratch, gather
from kvplan.runtime.transfer.posts import hand_over
from kvplan.runtime.transfer.prepare import PreparedLink, link
from kvplan.runtime.transport.base import TransferHandle, Transport
from kvplan.runtime.transport.inmemory import Hub, InMemory

# What a decode worker reads: runs by (pair, prefill shard).
WorkerRuns = Mapping[tuple[str, int], Runs]
MakeTransport = Callable[[str], Transport]
PAUSE = 20e-6


class LocalCarrier:
    """All workers of both sides, by number. `make` makes the transports, over memory on the host unless given."""

    def __init__(
        self, plan: Plan, prefill: Sequence[Pool], decode: Sequence[Pool], make: MakeTransport | None = None
    ) -> None:
        hub = Hub()
        made = make or (lambda name: InMemory(hub, name))
        self._plan, self._pools, self._scratch = plan, (prefill, decode), IndexScratch()
        self._source, self._target = made("prefill"), made("decode")
        for pools, transport in zip(self._pools, (self._source, self._target), strict=True):
            for pool in pools:
                for mem_type, regions in pool.geometry.by_type():
                    transport.register(regions, mem_type)
        self._peer = self._target.add_peer(self._source.metadata())
        self._source.add_peer(self._target.metadata())
        self._links: dict[tuple[int, int], PreparedLink] = {}
        self._failed = False

    def move(self, runs: Sequence[WorkerRuns], seconds: float) -> int:
        """Move the runs of every decode worker; returns the bytes.

        Raises DeadlineError, and what gathering and transports raise; then nothing is moved any more (HandleError).
        """
        if self._failed:
            raise HandleError("bytes may still come of what failed before: make a new one, over other memory")
        self._failed = True
        handles: list[TransferHandle | None] = []
        moved = 0
        for worker, of_worker in enumerate(runs):
            for source in sorted({read.worker for read in self._plan.reads[worker]}):
                moved += self._post(source, worker, of_worker, handles)
        self._wait([handle for handle in handles if handle is not None], seconds)
        self._failed = False
        return moved

    def close(self) -> None:
        """Nothing is moved any more."""
        for made in self._links.values():
            made.release()
        self._target.close()
        self._source.close()

    def _post(self, source: int, worker: int, runs: WorkerRuns, handles: list[TransferHandle | None]) -> int:
        shard = self._plan.prefill.workers[source].shard
        by_pair = {pair.name: runs.get((pair.name, shard), NO_RUNS) for pair in self._plan.pairs}
        load = gather(made := self._link(source, worker), by_pair, self._scratch)
        hand_over(self._target, made, load, handles)
        return load.bytes

    def _link(self, source: int, worker: int) -> PreparedLink:
        key = source, worker
        if key not in self._links:
            prefill, decode = self._pools[0][source].geometry, self._pools[1][worker].geometry
            ends = PreparedLink(source, worker, self._peer, False, prefill, decode)
            self._links[key] = link(self._plan, ends, self._target)
        return self._links[key]

    def _wait(self, handles: Sequence[TransferHandle], seconds: float) -> None:
        end, left = now() + seconds, list(handles)
        while left := [handle for handle in left if not handle.poll()]:
            if now() > end:
                raise DeadlineError(f"{len(left)} transfers did not end within {seconds:g} s: close the carrier")
            self._source.progress()
            self._target.progress()
            time.sleep(PAUSE)
        for handle in handles:
            handle.release()
