"""Checksums of a request's bytes, as either side computes them: in a thread, so that no poll waits for gigabytes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from kvplan.plan import request as requests
from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.plan.types import Plan
from kvplan.runtime.checksum.checksum import Sample, check, of_read
from kvplan.runtime.control.messages import Done, Sums, unpack
from kvplan.runtime.errors import cause_text
from kvplan.runtime.memory.register import Pool

K = TypeVar("K")
V = TypeVar("V")


class ChecksumThread(Generic[K, V]):
    """A thread that computes one worker's checksums, each with a key, one at a time in the order of `start`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kvplan-checksum")
        self._futures: dict[K, Future[V]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def start(self, key: K, call: Callable[[], V]) -> None:
        self._futures[key] = self._thread.submit(call)

    def take_all(self) -> list[tuple[K, V]]:
        """Return the keys and results of all calls that have ended. Raises the error of the first that failed."""
        ended = [key for key, one in self._futures.items() if one.done()]
        return [(key, self._futures.pop(key).result()) for key in ended]

    def drop(self, key: K) -> None:
        """Drop a key whose result is not needed any more."""
        if (future := self._futures.pop(key, None)) is not None:
            future.cancel()

    def close(self) -> None:
        """Wait for the running call, and end. The memory may be freed afterwards."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._futures.clear()


def summed(plan: Plan, prefill_worker: int, pool: Pool, request: Request, sample: Sample) -> Sums | Exception:
    """Return, on decode, the checksums of the bytes from a prefill worker, or the error of computing them."""
    try:
        found = of_read(plan, prefill_worker, pool.worker, "decode", pool, request, sample)
    except Exception as error:
        return error
    return tuple((*of, value) for of, value in sorted(found.items()))


def compare(plan: Plan, decode_worker: int, pool: Pool, done: Done, named: Tables) -> KvplanError | None:
    """Return, on prefill, an error if the checksums of a Done are invalid or differ from those of the blocks here.

    `named` tables replace those in the Done.
    """
    try:
        _check(plan, decode_worker, pool, done, named)
    except KvplanError as error:
        return error
    except Exception as error:
        return BadRequestError(f"the checksums cannot be compared: {cause_text(error)}")
    return None


def _check(plan: Plan, decode_worker: int, pool: Pool, done: Done, named: Tables) -> None:
    if done.asked is None or done.sample is None or done.asked.request != done.request:
        raise BadRequestError("checksums came without the request that they are of")
    asked = done.asked
    tables: Tables = {**unpack(asked.prefill), **named}
    request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
    # If it was fed in chunks, these name no blocks of groups that decode does not need.
    request = requests.check(plan, request, pool.blocks, {}, fed=True)
    local = of_read(plan, pool.worker, decode_worker, "prefill", pool, request, Sample(*done.sample))
    check({(cache, layer): value for cache, layer, value in done.sums}, local)
