"""Two agents of one transport, and an agent in a process of its own: what the hazard tests do harm to."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.paths import ROOT
from tests.runtime.helpers.waiting import SECONDS, until

from kvplan.plan.types import Ints
from kvplan.runtime import Hub, InMemory, Nixl, errors
from kvplan.runtime.transport.base import Op
from kvplan.runtime.transport.nixl import api

LENGTH = 1 << 16
UNIT = 64


def has_nixl() -> bool:
    try:
        api()
    except errors.NixlMissingError:
        return False
    return True


def region(array: np.ndarray) -> Ints:
    return np.array([[array.ctypes.data, array.nbytes, 0]])


def units(array: np.ndarray, unit: int = UNIT) -> Ints:
    """All of an array as one strided row of `unit` bytes each."""
    return np.array([[array.ctypes.data, unit, 0, unit, array.nbytes // unit]])


def index(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def scattered(count: int) -> np.ndarray:
    """All indices backwards, so that nothing is merged."""
    return np.arange(count - 1, -1, -1, dtype=np.int32)


def pattern(size: int) -> np.ndarray:
    """Bytes that are never 0 and that differ from their neighbours."""
    return (np.arange(size) % 251 + 1).astype(np.uint8)


def progressed(met: Callable[[], object], *agents: Any) -> None:
    """Progress the agents until `met`."""
    until(met, *(agent.progress for agent in agents), pause=0)


class Two:
    """A reader and an owner in this process, with a buffer each."""

    def __init__(self, kind: str) -> None:
        self.hub = Hub()
        self.reader, self.owner = self.agent(kind, "reader"), self.agent(kind, "owner")
        self.mine, self.theirs = np.zeros(LENGTH, np.uint8), pattern(LENGTH)
        self.reader.register(region(self.mine), "DRAM")
        self.owner.register(region(self.theirs), "DRAM")
        self.peer = self.reader.add_peer(self.owner.metadata())

    def agent(self, kind: str, name: str) -> Any:
        return Nixl(name, telemetry=True) if kind == "nixl" else InMemory(self.hub, name)

    def lists(self) -> tuple[Any, Any]:
        return self.reader.prepare(None, units(self.mine), "DRAM"), self.reader.prepare(
            self.peer, units(self.theirs), "DRAM"
        )

    def post(self, *at: int, op: str = "READ") -> Any:
        local, remote = self.lists()
        return self.reader.post(op, self.peer, local, index(*at), remote, index(*at))

    def finish(self, handle: Any) -> None:
        progressed(handle.poll, self.reader, self.owner)

    def works(self) -> bool:
        """Whether a read still gives the owner's bytes."""
        self.mine[:] = 0
        handle = self.post(3, 5)
        self.finish(handle)
        handle.release()
        wanted = np.zeros(LENGTH, np.uint8)
        for unit in (3, 5):
            wanted[unit * UNIT : (unit + 1) * UNIT] = self.theirs[unit * UNIT : (unit + 1) * UNIT]
        return np.array_equal(self.mine, wanted)

    def close(self) -> None:
        self.reader.close()
        self.owner.close()


class Target:
    """A process whose memory is read over NIXL, and an agent here that reads it."""

    def __init__(self, size: int = 1 << 20) -> None:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process: Any = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.helpers.target_process", str(size)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        metadata, self.address = self.line().split()
        self.mine = np.zeros(size, np.uint8)
        self.reader = Nixl("reader", telemetry=True)
        self.reader.register(region(self.mine), "DRAM")
        self.metadata = bytes.fromhex(metadata)
        self.peer = self.reader.add_peer(self.metadata)

    def line(self) -> str:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(SECONDS), "no word from the target"
            return self.process.stdout.readline().strip()

    def tell(self, word: str) -> str:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.line()

    def post(self, op: Op = "READ", unit: int = 1 << 12) -> Any:
        """All of the target's memory, by index, so that many requests are posted."""
        count = self.mine.nbytes // unit
        theirs = np.array([[int(self.address), unit, 0, unit, count]])
        local, remote = (
            self.reader.prepare(None, units(self.mine, unit), "DRAM"),
            self.reader.prepare(self.peer, theirs, "DRAM"),
        )
        at = scattered(count)
        return self.reader.post(op, self.peer, local, at, remote, at)

    def finish(self, handle: Any) -> None:
        progressed(handle.poll, self.reader)

    def meet(self) -> None:
        """The first read, with which the connection is made."""
        handle = self.post()
        self.finish(handle)
        handle.release()
        assert np.array_equal(self.mine, pattern(self.mine.size))
        self.mine[:] = 0

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    def close(self) -> None:
        self.reader.close()
        self.process.kill()
        self.process.wait(SECONDS)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
