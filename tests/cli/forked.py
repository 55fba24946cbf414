"""A command in a process of its own, which is forked off: it has imported all that it needs."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from kvplan.cli.main import main

SECONDS = 60


def forked(words: Sequence[str], output: int, before: Callable[[], None] = lambda: None) -> int:
    """Run `kvplan WORDS` after `before`, with the descriptor `output` for all that it prints. Returns the child's id.

    Whatever happens, the child ends within a minute, and runs nothing else of its parent's.
    """
    if child := os.fork():
        return child
    code = 1
    try:
        signal.alarm(SECONDS)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        before()
        main(list(words))
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
