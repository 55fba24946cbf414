"""The launcher of engines: imports vLLM once, then forks itself for each engine, as lines of JSON on stdin ask.

Runs in vLLM's environment. The import takes 14 s, a fork after it takes no time and is safe before the first tensor.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
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
    import vllm.v1.worker.cpu_model_runner
    import vllm.v1.worker.cpu_worker  # noqa: F401


def run_engine(order: Mapping[str, Any]) -> None:
    """An engine whose words go over the Unix socket that the harness listens at."""
    os.environ.update(order["environment"])
    words = socket.socket(socket.AF_UNIX)
    words.connect(order["socket"])
    engine.serve(order["config"], words)


def make_model(order: Mapping[str, Any]) -> None:
    models.make(order["model"], order["folder"])


ORDERS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"engine": run_engine, "model": make_model}


def fork(log: str, work: Callable[[], None]) -> None:
    """Do `work` in a child with a process group of its own, which ends with this process; it prints into `log`."""
    parent = os.getpid()
    if os.fork():
        return
    code = 1
    try:
        os.setsid()
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


def die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
