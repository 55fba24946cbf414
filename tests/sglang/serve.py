"""The launcher of SGLang's servers: imports SGLang once, then forks itself for each, as lines of JSON on stdin ask.

Runs in SGLang's environment. Orders are those of vLLM's launcher; a program's words are its command line, which begins
with `sglang`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tests.sglang.machines import imported
from tests.vllm.forks import die_with_parent, ending_together, fork


def main() -> None:
    die_with_parent(os.getppid())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    imported()
    import sglang.cli.main
    import sglang.cli.serve
    import sglang.launch_server
    import sglang.srt.entrypoints.http_server  # noqa: F401

    answers.write("imported\n")
    answers.flush()
    for line in sys.stdin:
        order = json.loads(line)
        fork(order["log"], partial(run_program, order))


def run_program(order: Mapping[str, Any]) -> None:
    os.environ.update(order["environment"])
    ending_together(partial(program, order["words"]), order["pid"])


def program(words: Sequence[str]) -> None:
    """The command `sglang`."""
    from sglang.cli.main import main as command

    sys.argv = list(words)
    command()


if __name__ == "__main__":
    main()
