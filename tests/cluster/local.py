"""A worker of the rig in this process, with the face of one in a process of its own."""

from __future__ import annotations

import time
from typing import Any

from tests.cluster.actor import Word
from tests.cluster.process import Lost
from tests.cluster.setting import Setting
from tests.cluster.start import actor

from kvplan.runtime.transport.inmemory import Hub

PAUSE = 0.0002


class Local:
    """It runs only while `pump` is called, or while an answer is waited for."""

    def __init__(self, setting: Setting, hub: Hub) -> None:
        self.setting, self.hub, self.alive, self.frozen = setting, hub, True, list[tuple[float, float]]()
        self._count, self._frozen_at = 0, 0.0
        self._answers, self._events = dict[int, Word](), list[Word]()
        self.actor = actor(setting, self._hear, hub)

    @property
    def up(self) -> bool:
        return self.alive and not self._frozen_at

    def send(self, op: str, **arguments: Any) -> int:
        self._count += 1
        if not self.alive:
            raise Lost(f"{op}: the worker is gone")
        self.actor.told({"op": op, "re": self._count, **arguments})
        return self._count

    def has(self, number: int) -> bool:
        return number in self._answers or not self.alive

    def answer(self, number: int, seconds: float = 30) -> Word:
        until = time.monotonic() + seconds
        while number not in self._answers:
            if time.monotonic() > until or not self.alive:
                raise Lost(f"no answer in {seconds} s from {self.setting.name}")
            self.pump()
            time.sleep(PAUSE)
        return self._answers.pop(number)

    def call(self, op: str, seconds: float = 30, **arguments: Any) -> Word:
        return self.answer(self.send(op, **arguments), seconds)

    def events(self) -> list[Word]:
        found, self._events = self._events, []
        return found

    def pump(self) -> None:
        if self.alive and not self._frozen_at:
            self.actor.poll()

    def kill(self) -> None:
        """Kill a worker: it sends nothing more, peers lose its memory, and its resources are given back."""
        self.close()

    def freeze(self) -> None:
        self._frozen_at = time.monotonic()
        self.hub.frozen.add(self.actor.transport.name)

    def thaw(self) -> None:
        self.hub.frozen.discard(self.actor.transport.name)
        if self._frozen_at:
            self.frozen.append((self._frozen_at, time.monotonic()))
            self._frozen_at = 0.0

    def close(self) -> None:
        self.thaw()
        if self.alive:
            self.alive = False
            self.actor.close()

    def _hear(self, word: Word) -> None:
        if "re" in word:
            self._answers[word["re"]] = word
        else:
            self._events.append(word)
