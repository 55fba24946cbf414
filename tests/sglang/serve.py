"""The launcher of SGLang's servers: imports SGLang once, then forks itself for each, as lines of JSON on stdin ask.

Runs in SGLang's environment. Orders are those of vLLM's launcher; a program's words are `sglang`, and JSON of the
server's options and environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.sglang.machines import ON_CPU, imported
from tests.vllm.forks import die_with_parent, ending_together, fork


def main() -> None:
    die_with_parent(os.getppid())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    imported()
    import sglang.srt.entrypoints.http_server  # noqa: F401

    answers.write("imported\n")
    answers.flush()
    for line in sys.stdin:
        order = json.loads(line)
        fork(order["log"], partial(run_program, order))


def run_program(order: Mapping[str, Any]) -> None:
    ending_together(partial(program, json.loads(order["words"][1])), order["pid"])


def program(said: Mapping[str, Any]) -> None:
    """One server."""
    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import ServerArgs

    os.environ.update(said["environment"])
    # The plugin adds a choice of an argument.
    load_plugins()
    launch_server(ServerArgs(**{**ON_CPU, "skip_tokenizer_init": False, **said["options"]}))


if __name__ == "__main__":
    main()
