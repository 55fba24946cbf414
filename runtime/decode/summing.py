"""Checksums of what arrived, summed beside the poll, which must not wait for gigabytes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from weakref import WeakKeyDictionary

from kvplan.plan.request import Request
from kvplan.plan.types import Plan
from kvplan.runtime.checksum.checksum import Sample, of_read
from kvplan.runtime.control.messages import Sums
from kvplan.runtime.decode.parts import PeerProgress
from kvplan.runtime.memory.register import Pool


class ChecksumQueue:
    """The sums of one decode worker, one at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._thread = pool, ThreadPoolExecutor(1, "kvplan-checksum")
        # A request that fails meanwhile is not asked for again.
        self._parts: WeakKeyDictionary[PeerProgress, Future[Sums]] = WeakKeyDictionary()

    def of(self, part: PeerProgress, plan: Plan, request: Request, sample: Sample) -> Sums | None:
        """(cache, layer, digest) of what came from a prefill worker, None until that is known. Raises as `of_read`."""
        if part not in self._parts:
            self._parts[part] = self._thread.submit(self._of, part.member.worker, plan, request, sample)
        if not self._parts[part].done():
            return None
        return self._parts.pop(part).result()

    def close(self) -> None:
        """End, when what is being summed is: the memory may go away afterwards."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._parts.clear()

    def _of(self, prefill: int, plan: Plan, request: Request, sample: Sample) -> Sums:
        found = of_read(plan, prefill, self._pool.worker, "decode", self._pool, request, sample)
        return tuple((cache, layer, value) for (cache, layer), value in sorted(found.items()))
