"""The process's end of the pipes: `python -m tests.cluster.host CONFIG`, a JSON object as `Setting` has it."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from tests.cluster.setting import setting
from tests.cluster.start import actor

PAUSE = 0.004


def main(config: dict[str, Any]) -> None:
    """Serve until the input ends. Only answers and events go to stdout, whatever libraries print."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    one = actor(setting(config), lambda word: _say(out, word))
    try:
        for line in _lines():
            if line:
                one.told(json.loads(line))
            one.poll()
    finally:
        one.close()


def _say(out: TextIO, word: dict[str, Any]) -> None:
    out.write(json.dumps(word) + "\n")
    out.flush()


def _lines() -> Iterator[bytes]:
    """Lines of the input; between them, every few milliseconds, an empty one."""
    rest = b""
    while True:
        *lines, rest = rest.split(b"\n")
        yield from lines
        yield b""
        if not select.select([0], [], [], PAUSE)[0]:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            return
        rest += data


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
