"""The launcher of engines: imports vLLM once, then forks itself for each engine, as lines of JSON on stdin ask.

Runs in vLLM's environment. The import takes 14 s, a fork after it takes no time and is safe before the first tensor.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.vllm import engine, models

PR_SET_PDEATHSIG = 1


def main() -> None:
    die_with_parent(os.getppid())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who ends leaves no zombie
    preload()
    answers.write("imported\n")
    answers.flush()
    for line in sys.stdin:
        order = json.loads(line)
        fork(order["log"], partial(ORDERS[order["op"]], order))


def preload() -> None:
    """Import what an engine would import after its fork."""
    import vllm.v1.engine.core
    import vllm.v1.engine.llm_engine
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        import vllm.v1.worker.cpu_model_runner
        import vllm.v1.worker.cpu_worker
    else:
        import vllm.v1.worker.gpu_worker  # noqa: F401


def run_engine(order: Mapping[str, Any]) -> None:
    """An engine whose words go over the Unix socket that the harness listens at."""
    os.environ.update(order["environment"])
    words = socket.socket(socket.AF_UNIX)
    words.connect(order["socket"])
    engine.serve(order["config"], words)


def make_model(order: Mapping[str, Any]) -> None:
    models.make(order["model"], order["folder"])


def run_program(order: Mapping[str, Any]) -> None:
    """A program with processes of its own, as `vllm serve` is: all of them end with this one, whose id is in a file."""
    os.environ.update(order["environment"])
    ending_together(partial(program, order["words"]), order["pid"])


def program(words: Sequence[str]) -> None:
    """The command `vllm`, or a file of Python."""
    sys.argv = list(words)
    if words[0] == "vllm":
        from vllm.entrypoints.cli.main import main as command

        command()
    else:
        runpy.run_path(words[0], run_name="__main__")


def ending_together(work: Callable[[], None], pid: str) -> None:
    """Do `work` in a child; kill the whole process group when the child, this process or its parent ends."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    die_with_parent(parent, signal.SIGTERM)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        return
    Path(f"{pid}.new").write_text(str(os.getpid()))
    os.rename(f"{pid}.new", pid)
    os.waitpid(child, 0)
    os.killpg(0, signal.SIGKILL)


ORDERS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "engine": run_engine,
    "model": make_model,
    "program": run_program,
}


def fork(log: str, work: Callable[[], None]) -> None:
    """Do `work` in a child with a process group of its own, which ends with this process; it prints into `log`."""
    parent = os.getpid()
    if os.fork():
        return
    code = 1
    try:
        # No session of its own: Linux shares cores between sessions first (sched_autogroup). Where two of them had more
        # to do than there are cores, a thread was seen to wait seconds for its turn; in one session, 25 ms.
        os.setpgid(0, 0)
        die_with_parent(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        redirect(log)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it went before the call
        os._exit(1)


def redirect(log: str) -> None:
    """Nothing to read; stdout and stderr to the file `log`."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)


if __name__ == "__main__":
    main()
