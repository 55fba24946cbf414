"""Checksums of what a request moved, as either side computes them: on a thread, as no poll waits for gigabytes."""

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
    """Checksums of one worker by whatever they are for, one at a time, in the order in which they were begun."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kvplan-checksum")
        self._futures: dict[K, Future[V]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def start(self, key: K, call: Callable[[], V]) -> None:
        self._futures[key] = self._thread.submit(call)

    def take_all(self) -> list[tuple[K, V]]:
        """What came of all calls that have ended. Raises what one of them raised."""
        ended = [key for key, one in self._futures.items() if one.done()]
        return [(key, self._futures.pop(key).result()) for key in ended]

    def drop(self, key: K) -> None:
        """Nobody asks for a key any more."""
        if (future := self._futures.pop(key, None)) is not None:
            future.cancel()

    def close(self) -> None:
        """End, when what is being summed is: the memory may go away afterwards."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._futures.clear()


def summed(plan: Plan, prefill_worker: int, pool: Pool, request: Request, sample: Sample) -> Sums | Exception:
    """Decode: the checksums of what came from a prefill worker, or why there are none."""
    try:
        found = of_read(plan, prefill_worker, pool.worker, "decode", pool, request, sample)
    except Exception as error:
        return error
    return tuple((*of, value) for of, value in sorted(found.items()))


def compare(plan: Plan, decode_worker: int, pool: Pool, done: Done, named: Tables) -> KvplanError | None:
    """Prefill: what differs between the sums of a Done and those of the blocks here, or what is wrong with it.

    None if all is the same. `named` tables count before its own.
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
    # It may have been fed in chunks, which name no block of a group of which nothing is needed.
    request = requests.check(plan, request, pool.blocks, {}, fed=True)
    local = of_read(plan, pool.worker, decode_worker, "prefill", pool, request, Sample(*done.sample))
    check({(cache, layer): value for cache, layer, value in done.sums}, local)
