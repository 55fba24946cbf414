"""Locks of workers, where a signal's handler raises."""

from __future__ import annotations

import _thread
import operator
import signal
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.runtime.ops import logs
from kvplan.runtime.ops.locks import WorkerLock


@pytest.fixture(autouse=True)
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(lock: WorkerLock, name: str) -> None:
    """Have Ctrl-C come together with a call of the lock's own: within the call, in C, as if another core sent it."""
    real = lock._lock
    steps = [getattr(real, name), _thread.interrupt_main]
    calls = {"acquire": real.acquire, "release": real.release, name: partial(list, map(operator.call, steps))}
    lock._lock = SimpleNamespace(**calls)  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["acquire", "release"])
@pytest.mark.parametrize("times", [0, 1])
def test_a_signal_that_comes_with_a_lock_leaves_it_as_it_was(name: str, times: int) -> None:
    """Who had it for ever would stop all other threads of the process, and what it logs would not be handed over."""
    lock = WorkerLock()
    real: Any = lock._lock
    for _ in range(times):
        lock.__enter__()
    interrupted(lock, name)
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    lock._lock = real
    assert logs.depth() == times
    for _ in range(times):
        lock.__exit__()
    assert not real._is_owned()
    assert logs.depth() == 0
