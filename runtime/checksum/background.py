"""Checksums in the making, on a thread beside the poll, which must not wait for gigabytes to be summed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

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
        self._futures[key] = future = Future[V]()
        self._thread.submit(_run, future, call)

    def take_all(self) -> list[V]:
        """What came of all calls that have ended. Raises what one of them raised."""
        return [self._futures.pop(key).result() for key in [key for key, one in self._futures.items() if one.done()]]

    def drop(self, key: K) -> None:
        """Nobody asks for a key any more."""
        if (future := self._futures.pop(key, None)) is not None:
            future.cancel()

    def close(self) -> None:
        """End, when what is being summed is: the memory may go away afterwards."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._futures.clear()


def _run(future: Future[V], call: Callable[[], V]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
