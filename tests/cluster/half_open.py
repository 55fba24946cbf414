"""`python -m tests.cluster.half_open ADDRESS COUNT SECONDS`: TCP connections that say nothing, or begin and stop."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack

# ZMTP 3.1: a greeting of 64 bytes; the head of a command that never comes.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
WORDS = (b"", GREETING[:10], GREETING, GREETING + b"\x06" + (1 << 24).to_bytes(8, "big"))


def main(address: str, count: int, seconds: float) -> None:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with ExitStack() as stack:
        for number in range(count):
            line = stack.enter_context(socket.create_connection((host, int(port)), 10))
            line.sendall(WORDS[number % len(WORDS)])
        time.sleep(seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
