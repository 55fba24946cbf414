"""An engine: its workers, and the blocks that they share. It starts, dies and comes back as one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.cluster.allocator import Allocator
from tests.cluster.hosts import Host
from tests.cluster.local import Local
from tests.cluster.process import Lost, Process, Word
from tests.cluster.setting import Setting, plain

from kvplan.runtime.transport.inmemory import Hub

UCX_HOST = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "cable"}
Worker = Process | Local


class Engine:
    """The workers of one side. With a hub they live in this process, with a host in a network namespace."""

    def __init__(
        self, setting: Setting, random: Random, hub: Hub | None = None, host: Host | None = None, **environment: str
    ) -> None:
        self.setting, self.random, self.hub, self.host = setting, random, hub, host
        self.environment = {**(UCX_HOST if host else {}), **environment}
        self.workers: list[Worker] = []
        self.addresses: list[str] = []
        self.run = ""
        self.blocks = Allocator(setting.logical, random)
        self.start()

    @property
    def up(self) -> bool:
        """Whether every worker can answer."""
        return all(worker.up for worker in self.workers)

    def start(self, seconds: float = 60) -> None:
        """Start every worker, at the addresses that it had before. Raises Lost."""
        self.run, self.blocks = uuid.uuid4().hex, Allocator(self.setting.logical, self.random)
        bind = f"tcp://{self.host.address}:*" if self.host else self.setting.bind
        binds = self.addresses or [bind] * self.setting.shape.workers
        self.workers = [self._worker(number, bind) for number, bind in enumerate(binds)]
        try:
            self.addresses = [self._up(worker, time.monotonic() + seconds) for worker in self.workers]
        except Lost:
            self.close()
            raise
        if self.setting.role == "prefill":
            self.every("announce", addresses=self.addresses)
        else:
            self.addresses = []

    def restart(self) -> None:
        """Kill what still runs of it, and start it again with the same name at the same addresses."""
        self.kill()
        self.start()

    def kill(self) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.kill()
            worker.close()

    def every(self, op: str, seconds: float = 30, **arguments: Any) -> list[Word]:
        """Tell all workers the same; their answers. Raises Lost, AssertionError for a crash."""
        asked = [(worker, worker.send(op, **arguments)) for worker in self.workers]
        return [sound(worker.answer(number, seconds)) for worker, number in asked]

    def events(self) -> Iterator[tuple[int, Word]]:
        for number, worker in enumerate(self.workers):
            if isinstance(worker, Local):
                worker.pump()
            for word in worker.events():
                yield number, word

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def _worker(self, number: int, bind: str) -> Worker:
        setting = replace(self.setting, number=number, run=self.run, bind=bind)
        if self.hub is not None:
            return Local(setting, self.hub)
        return Process(plain(setting), self.host.prefix if self.host else (), **self.environment)

    def _up(self, worker: Worker, until: float) -> str:
        while time.monotonic() < until and worker.alive:
            for word in worker.events():
                if word.get("event") == "up":
                    return str(word["address"])
            time.sleep(0.01)
        raise Lost(f"{self.setting.name} did not start: {worker.stderr() if isinstance(worker, Process) else ''}")


def sound(word: Word) -> Word:
    """The answer, where it is no crash."""
    assert word.get("code") != "crash", word["text"]
    return word
