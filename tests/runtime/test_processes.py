"""NIXL between processes: bytes, the contract, and peers that freeze, die and come back. Every step has a deadline."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvplan.runtime import Nixl, Puller, Request, errors, views
from kvplan.runtime.nixl import api
from tests.runtime.plans import plan
from tests.runtime.prefill_process import DECODE_IDS, MODEL, PREFILL_IDS, SHAPES, TOKENS
from tests.runtime.worlds import expect, memory, tables, truth

ROOT = Path(__file__).parents[2]

try:
    api()
except errors.NixlMissingError:
    pytest.skip("NIXL is not installed", allow_module_level=True)


def line(process: Any, seconds: float = 30) -> str:
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(seconds), "no word from a prefill process"
        return process.stdout.readline().strip()


class Engine:
    """A prefill process per worker."""

    def __init__(self, generation: str, **environment: str) -> None:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.processes: list[Any] = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.runtime.prefill_process", str(number), generation],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(SHAPES[0].workers)
        ]
        self.addresses = [line(process) for process in self.processes]
        for process in self.processes:
            process.stdin.write(" ".join(self.addresses) + "\n")
            process.stdin.flush()

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            process.stdout.close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine("g1")
    yield made
    made.stop()


@pytest.fixture
def puller() -> Iterator[tuple[Puller, dict[str, np.ndarray]]]:
    made, arrays = plan(*SHAPES, MODEL), memory(SHAPES[1], MODEL, 0)
    puller = Puller(made, 0, views(made.decode, 0, arrays), Nixl("d0", telemetry=True))
    yield puller, arrays
    puller.close()


def request(name: str) -> Request:
    sides = [
        tables(s, MODEL, ids, 0, 2 + n, TOKENS)
        for n, (s, ids) in enumerate(zip(SHAPES, (PREFILL_IDS, DECODE_IDS), strict=True))
    ]
    return Request(name, (0, TOKENS), sides[0], sides[1])


def until_free(one: Puller) -> None:
    """Poll until no block is in quarantine."""
    until = time.monotonic() + 10
    while one.quarantined():
        one.poll()
        assert time.monotonic() < until


def right(arrays: dict[str, np.ndarray]) -> bool:
    wanted = expect(SHAPES[1], MODEL, 0, truth(MODEL, TOKENS), request("x").decode, (0, TOKENS))
    return all(np.array_equal(array, wanted[plane]) for plane, array in arrays.items())


def test_bytes_requests_and_contract(engine: Engine, puller: tuple[Puller, dict[str, np.ndarray]]) -> None:
    one, arrays = puller
    one.connect(engine.addresses[0], 20)
    for name in ("a", "b"):
        done = one.submit(request(name), 20).wait()
        assert done.requests == done.posted == sum(one.predict(request(name)).values())
        assert right(arrays)
        assert [line(process) for process in engine.processes] == [f"finished {name}"] * 2


def test_a_killed_peer_fails_its_requests_and_a_restarted_one_is_met(
    engine: Engine, puller: tuple[Puller, dict[str, np.ndarray]]
) -> None:
    one, arrays = puller
    one.connect(engine.addresses[0], 20)
    one.submit(request("a"), 20).wait()
    engine.processes[1].kill()
    engine.processes[1].wait(10)
    with pytest.raises(errors.RequestError) as caught:
        one.submit(request("b"), 5).wait()
    assert caught.value.untrusted["kv"] == tuple(sorted(DECODE_IDS))
    until_free(one)
    for array in arrays.values():
        array[:] = 0
    again = Engine("g2")
    try:
        one.connect(again.addresses[0], 20)
        one.submit(request("c"), 20).wait()
        assert right(arrays)
    finally:
        again.stop()


@contextmanager
def tcp() -> Iterator[tuple[Engine, Puller, dict[str, np.ndarray]]]:
    """An engine over TCP, where bytes need the peer's hands, and a puller that has read from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", "tcp")
        engine = Engine("g1")
        made, arrays = plan(*SHAPES, MODEL), memory(SHAPES[1], MODEL, 0)
        one = Puller(made, 0, views(made.decode, 0, arrays), Nixl("d0"))
        try:
            one.connect(engine.addresses[0], 20)
            one.submit(request("a"), 20).wait()
            yield engine, one, arrays
        finally:
            one.close()
            engine.stop()


def test_a_frozen_peer_meets_the_deadline_and_late_bytes_the_quarantine() -> None:
    with tcp() as (engine, one, arrays):
        engine.processes[0].send_signal(signal.SIGSTOP)
        with pytest.raises(errors.DeadlineError):
            one.submit(request("b"), 0.2).wait()
        assert isinstance(one.submit(request("c"), 1).error, errors.QuarantinedError)
        one.drop(0)
        for array in arrays.values():
            array[:] = 0
        assert one.quarantined()
        engine.processes[0].send_signal(signal.SIGCONT)
        until_free(one)
        # The late bytes did come: worker 0's head, after its peer was dropped.
        assert any(array.any() for array in arrays.values())


def test_nothing_lands_after_close() -> None:
    with tcp() as (engine, one, arrays):
        engine.processes[0].send_signal(signal.SIGSTOP)
        one.submit(request("b"), 0.1)
        one.close()
        assert one.quarantined() == {}
        before = {plane: array.copy() for plane, array in arrays.items()}
        engine.processes[0].send_signal(signal.SIGCONT)
        time.sleep(0.3)
        assert all(np.array_equal(array, before[plane]) for plane, array in arrays.items())


def test_no_answer_meets_the_deadline(puller: tuple[Puller, dict[str, np.ndarray]]) -> None:
    with pytest.raises(errors.HandshakeError, match="did not answer before the deadline"):
        puller[0].connect("tcp://127.0.0.1:1", 0.2)
