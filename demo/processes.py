"""Workers, processes or threads, that report to their parent over a pipe; every wait has a deadline."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

GRACE = 1.5


class ProcessError(Exception):
    """A worker failed, died or stayed silent. The text says which one and its last message."""


@dataclass(frozen=True, slots=True)
class WorkerHandle:
    """One worker and the parent's end of its pipe."""

    name: str
    runner: BaseProcess | Thread
    pipe: Connection

    def tell(self, message: object) -> None:
        """Send one message. Raises ProcessError if the worker has ended."""
        try:
            self.pipe.send(message)
        except OSError as ended:
            raise ProcessError(f"{self.name} has ended{self._ending()}") from ended

    def hear(self, until: float) -> Any:
        """Return the next message, waiting until time.monotonic() is `until`. Raises ProcessError without one."""
        if not self.pipe.poll(max(0.0, until - time.monotonic())):
            raise ProcessError(f"{self.name} said nothing before the deadline; stopped")
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError) as ended:
            self.runner.join(GRACE)
            raise ProcessError(f"{self.name} died{self._ending()}") from ended
        if kind == "error":
            raise ProcessError(f"{self.name}: {value}")
        return value

    def _ending(self) -> str:
        return f" with exit code {self.runner.exitcode}" if isinstance(self.runner, BaseProcess) else ""


@dataclass(frozen=True, slots=True)
class WorkerPipe:
    """The worker's end: `say` a value, `listen` for one, `waiting` without blocking."""

    pipe: Connection

    def say(self, value: object) -> None:
        """Send a value to the parent."""
        self.pipe.send(("value", value))

    def listen(self, seconds: float) -> Any:
        """Return the parent's next message. Raises ProcessError after `seconds`, EOFError if the parent has ended."""
        if not self.pipe.poll(seconds):
            raise ProcessError(f"heard nothing for {seconds:.0f} s")
        return self.pipe.recv()

    def waiting(self) -> bool:
        """Whether the parent has sent a message or ended."""
        return self.pipe.poll(0)


class Processes:
    """Workers that never outlive this object: `with Processes() as workers`. With `threads`, all in this process."""

    def __init__(self, threads: bool = False) -> None:
        self._threads = threads
        self._members: list[WorkerHandle] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.pipe.close()
        end = time.monotonic() + GRACE
        for member in self._members:
            _stop(member.runner, end)

    def start(self, name: str, work: Callable[..., None], *args: object) -> WorkerHandle:
        """Start `work(Line, *args)` in a separate process (or thread); it ends when its pipe closes."""
        mine, theirs = multiprocessing.Pipe()
        member = WorkerHandle(name, self._run(name, work, theirs, args), mine)
        self._members.append(member)
        return member

    def _run(
        self, name: str, work: Callable[..., None], pipe: Connection, args: tuple[object, ...]
    ) -> BaseProcess | Thread:
        if self._threads:
            thread = Thread(target=_main, args=(work, pipe, args), name=name, daemon=True)
            thread.start()
            return thread
        # fork would copy the parent's threads' locks and NIXL's state; spawn starts clean
        process = multiprocessing.get_context("spawn").Process(
            target=_main, args=(work, pipe, args), name=name, daemon=True
        )
        with _deaf():
            process.start()
        pipe.close()
        return process


@contextmanager
def _deaf() -> Iterator[None]:
    """Block Ctrl-C in processes that start meanwhile: their parent handles it, after this block, and ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _main(work: Callable[..., None], pipe: Connection, args: tuple[object, ...]) -> None:
    with pipe:
        try:
            work(WorkerPipe(pipe), *args)
        except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
            return
        except Exception as error:
            with suppress(OSError):
                pipe.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}"))


def _stop(runner: BaseProcess | Thread, end: float) -> None:
    runner.join(max(0.0, end - time.monotonic()))
    if isinstance(runner, Thread):
        return
    if runner.is_alive():
        runner.terminate()
        runner.join(GRACE)
    if runner.is_alive():
        runner.kill()
        runner.join(GRACE)
