"""The harness's ends of the launcher and of the engines that it forks. Nothing here waits without a deadline."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any

from tests.paths import ROOT
from tests.vllm import installed

Word = dict[str, Any]
START_S, ANSWER_S = 480.0, 60.0
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # an engine in one process: its pool can be counted
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # the first logprobs would compile C++, 7 s and more
    "UCX_TLS": "tcp,sm,self,cma",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    "CUDA_VISIBLE_DEVICES": "",
}


class EngineLost(Exception):
    """An engine did not start, ended, or did not answer in time; the text ends with what it last logged."""


class Launcher:
    """An engine's package, imported once by `module`; `folder` holds models, logs and sockets.

    The first order waits for the import, so that two launchers import at once. `packages` are folders of Python
    packages that its environment lacks.
    """

    def __init__(
        self,
        python: Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        module: str = "tests.vllm.launcher",
        packages: Sequence[Path] = (),
    ) -> None:
        self.folder, self.python, self._engines = folder, python, 0
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "src", folder, *packages)))
        installed.describe(folder)
        # vLLM's own cache stays: without it each engine starts another process to look at its model's class.
        kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vllm"
        own = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "cache"), "VLLM_CACHE_ROOT": str(kept)}
        self._path = folder / f"{module}.log"
        self._log = self._path.open("w")
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", module],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, **(environment or {}), **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._imported = False

    def _wait_for_import(self) -> None:
        """Raises EngineLost."""
        assert self._process.stdout is not None
        timer = threading.Timer(START_S, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            raise EngineLost(f"the engine was not imported: {tail(self._path)}")
        self._imported = True

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # its engines go with it
        self._process.wait(20)
        self._log.close()

    def order(self, **order: Any) -> None:
        """Raises EngineLost."""
        if not self._imported:
            self._wait_for_import()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def model(self, name: str) -> Path:
        """The folder of a model, made on first use. Raises EngineLost."""
        folder = self.folder / "models" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            self.order(op="model", model=name, folder=str(folder), log=str(self.folder / f"model-{name}.log"))
        if not wait_until((folder / "config.json").exists, START_S):
            raise EngineLost(f"{name} was not made: {tail(self.folder / f'model-{name}.log')}")
        return folder

    def engine(self, name: str, config: Mapping[str, Any], environment: Mapping[str, str]) -> Engine:
        """Start an engine; it may not be ready yet."""
        self._engines += 1
        return Engine(self, f"{self._engines}-{name}", config, environment)


class Program:
    """A program that answers at a port, with all its processes in a group of its own; `words` are its command line."""

    def __init__(self, launcher: Launcher, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name, self.log = name, launcher.folder / f"{name}.log"
        self._pid = launcher.folder / f"{name}.pid"
        self._pid.unlink(missing_ok=True)
        order = {"words": list(words), "environment": dict(environment), "pid": str(self._pid)}
        launcher.order(op="program", log=str(self.log), **order)

    @property
    def runs(self) -> bool:
        """Whether it runs, or has not begun yet."""
        return not self._pid.exists() or alive(int(self._pid.read_text()))

    def close(self) -> None:
        """Kill all of it. Raises EngineLost."""
        wait_until(self._pid.exists, ANSWER_S)
        if self.runs:
            os.kill(int(self._pid.read_text()), signal.SIGTERM)
        if not wait_until(lambda: not self.runs, ANSWER_S):
            raise EngineLost(f"{self.name} does not die")


class Engine:
    """One engine in a process of its own. `ask` sends, the answer is fetched by its number."""

    def __init__(
        self, launcher: Launcher, name: str, config: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        self.name, self.log, self.pid = name, launcher.folder / f"{name}.log", 0
        self._answers: dict[int, Word] = {}
        self._events, self._count = Queue[Word](), 0
        self._told, self._ended = threading.Condition(), False
        self._socket: socket.socket | None = None
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            address = f"{folder}/engine"
            listener.bind(address)
            listener.listen(1)
            listener.settimeout(ANSWER_S)
            words = {"op": "engine", "socket": address, "log": str(self.log)}
            launcher.order(**words, config=config, environment=dict(environment))
            self._socket, _ = listener.accept()
        self._stream = self._socket.makefile("rw")
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_ready(self) -> None:
        """Wait for the start's end. Raises EngineLost with the error where there was one."""
        try:
            word = self._events.get(timeout=START_S)
        except Empty:
            raise EngineLost(f"{self.name} is not ready in {START_S:.0f} s: {tail(self.log)}") from None
        if "failed" in word:
            raise EngineLost(f"{self.name} did not start: {word['failed']}")
        if "ready" not in word:
            raise EngineLost(f"{self.name} ended: {tail(self.log)}")
        self.pid = word["pid"]

    def ask(self, op: str, **word: Any) -> int:
        """Say something; the number is for `answer`. Raises EngineLost."""
        self._count += 1
        try:
            self._stream.write(json.dumps({"re": self._count, "op": op, **word}) + "\n")
            self._stream.flush()
        except OSError as error:
            raise EngineLost(f"{self.name} is gone: {tail(self.log)}") from error
        return self._count

    def answer(self, number: int, seconds: float = ANSWER_S) -> Word:
        """The answer to a question. Raises EngineLost, TimeoutError."""
        with self._told:
            self._told.wait_for(lambda: number in self._answers or self._ended, seconds)
            if number in self._answers:
                return self._answers.pop(number)
        if self._ended:
            raise EngineLost(f"{self.name} ended: {tail(self.log)}")
        raise TimeoutError(f"no answer in {seconds:.0f} s")

    def call(self, op: str, seconds: float = ANSWER_S, **word: Any) -> Word:
        return self.answer(self.ask(op, **word), seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the engine and its workers."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if not wait_until(lambda: self._ended, ANSWER_S):
            raise EngineLost(f"{self.name} does not die")

    def close(self) -> None:
        """End it: by asking, and by force where that does not help."""
        if self.pid and not self._ended:
            with_grace = wait_until(lambda: self._ended, 20) if self._asked_to_stop() else False
            if not with_grace:
                self.kill()
        assert self._socket is not None
        with suppress(OSError):  # closing the stream would wait for the thread that reads it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        self._socket.close()

    def _asked_to_stop(self) -> bool:
        try:
            self.ask("stop")
        except EngineLost:
            return False
        return True

    def _listen(self) -> None:
        try:
            for line in self._stream:
                self._sort(json.loads(line))
        except (OSError, ValueError):
            pass
        finally:
            with self._told:
                self._ended = True
                self._told.notify_all()
            self._events.put({"ended": True})

    def _sort(self, word: Word) -> None:
        if "re" not in word:
            self._events.put(word)
            return
        with self._told:
            self._answers[word["re"]] = word
            self._told.notify_all()


def wait_until(is_so: Any, seconds: float) -> bool:
    """Whether `is_so()` became true in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs: what has ended may still wait for its parent to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:] if log.exists() else "nothing was logged"
