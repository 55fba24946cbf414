"""The launcher of engines: imports vLLM once, then forks itself for each engine, as lines of JSON on stdin ask.

Runs in vLLM's environment. The import takes 14 s, a fork after it takes no time and is safe before the first tensor.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.vllm import engine, models
from tests.vllm.forks import die_with_parent, ending_together, fork


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


ORDERS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "engine": run_engine,
    "model": make_model,
    "program": run_program,
}


if __name__ == "__main__":
    main()
