"""A worker in a process of its own, told what to do in lines of JSON; the test's end of the pipes.

Nothing here waits without a deadline.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from queue import Empty, Queue
from typing import Any

from tests.paths import ROOT

Word = dict[str, Any]


class Lost(Exception):
    """A process ended, or did not answer in time; the text ends with what it last wrote on stderr."""


class Process:
    """One worker. `call` is a question and its answer, `events` is what it says by itself."""

    def __init__(self, config: Mapping[str, Any], prefix: tuple[str, ...] = (), **environment: str) -> None:
        self.config, self.frozen_at, self._count = dict(config), 0.0, 0
        self.frozen: list[tuple[float, float]] = []
        self._answers, self._events = dict[int, Word](), Queue[Word]()
        self._told, self._ended = threading.Condition(), False
        self._stderr = tempfile.TemporaryFile(mode="a+")  # noqa: SIM115
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.cluster.host", json.dumps(self.config)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        return not self._ended and self.process.poll() is None

    @property
    def up(self) -> bool:
        """Whether it can answer."""
        return self.alive and not self.frozen_at

    def send(self, op: str, **arguments: Any) -> int:
        """Say something, and go on; the number is for `answer`. Raises Lost."""
        self._count += 1
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"op": op, "re": self._count, **arguments}) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Lost(f"{op}: the process is gone: {self.stderr()}") from error
        return self._count

    def has(self, number: int) -> bool:
        """Whether a question was answered, or never will be."""
        return number in self._answers or not self.alive

    def answer(self, number: int, seconds: float = 30) -> Word:
        """The answer to a question. Raises Lost."""
        with self._told:
            self._told.wait_for(lambda: number in self._answers or not self.alive, seconds)
            if number not in self._answers:
                raise Lost(f"no answer in {seconds} s from {self.config['name']}: {self.stderr()}")
            return self._answers.pop(number)

    def call(self, op: str, seconds: float = 30, **arguments: Any) -> Word:
        """Say something and wait for the answer. Raises Lost."""
        return self.answer(self.send(op, **arguments), seconds)

    def events(self) -> list[Word]:
        """Return the messages that the process has sent unasked since the last call."""
        found = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except Empty:
                return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def freeze(self) -> None:
        self.frozen_at = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        if self.frozen_at:
            self.frozen.append((self.frozen_at, time.monotonic()))
            self.frozen_at = 0.0

    def stderr(self) -> str:
        """The last of what it wrote there."""
        self._stderr.seek(0)
        return self._stderr.read()[-2000:]

    def close(self) -> None:
        """End it: by asking, and by force where that does not help."""
        if self.alive:
            self.thaw()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
        self.process.stdout.close()
        self._stderr.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._sort(json.loads(line))
        except ValueError:
            pass
        finally:
            with self._told:
                self._ended = True
                self._told.notify_all()

    def _sort(self, word: Word) -> None:
        if "re" not in word:
            self._events.put(word)
            return
        with self._told:
            self._answers[word["re"]] = word
            self._told.notify_all()


def overlap(spans: list[tuple[float, float]], start: float, end: float) -> float:
    """Seconds of [start, end] that lie in `spans`."""
    return sum(max(0.0, min(end, last) - max(start, first)) for first, last in spans)
