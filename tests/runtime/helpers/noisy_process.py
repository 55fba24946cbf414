"""A process in which NIXL reads well and fails in many ways; it must leave stdout alone."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.slowness import Patience

from kvplan.runtime import Nixl, errors
from kvplan.runtime.ops.logs import event, json_lines
from kvplan.runtime.ops.metrics import Counters

SIZE = 1 << 12


def main() -> None:
    logging.getLogger("kvplan.runtime").addHandler(json_lines())
    counters = Counters()
    reader, owner = Nixl("reader"), Nixl("owner")
    mine, theirs = np.zeros(SIZE, np.uint8), np.arange(SIZE, dtype=np.uint16).astype(np.uint8)
    spans = [np.array([[array.ctypes.data, SIZE, 0]]) for array in (mine, theirs)]
    for agent, span in ((reader, spans[0]), (owner, spans[1])):
        agent.register(span, "DRAM")
    metadata = owner.metadata()
    peer = reader.add_peer(metadata)
    for operation in ("READ", "WRITE"):
        finish(reader.post_spans(operation, peer, spans[0], "DRAM", spans[1], "DRAM"), (reader, owner))
        counters.add("requests", outcome="done")
    far = np.array([[8, SIZE, 0]])
    fail(counters, lambda: reader.add_peer(b"no metadata"))
    fail(counters, lambda: reader.add_peer(metadata[: len(metadata) // 2]))
    fail(counters, lambda: reader.post_spans("READ", peer, spans[0], "DRAM", far, "DRAM"))
    fail(counters, lambda: reader.post_spans("READ", peer, spans[0], "DRAM", spans[1][:0], "DRAM"))
    fail(counters, lambda: reader.prepare("nobody", np.array([[8, 64, 0, 64, 1]]), "DRAM"))
    owner.close()
    reader.close()
    fail(counters, reader.metadata)
    found: Any = counters.snapshot()
    print(f"noisy reads={found['requests']['done']} failures={found['requests']['failed']}", file=sys.stderr)


def finish(handle: Any, agents: tuple[Nixl, Nixl]) -> None:
    patience = Patience(30)
    while not handle.poll():
        for agent in agents:
            agent.progress()
        if not patience.lasts():
            raise TimeoutError("a read of this process from itself")
    handle.release()


def fail(counters: Counters, call: Callable[[], object]) -> None:
    try:
        call()
    except errors.KvplanError as error:
        counters.add("requests", outcome="failed")
        event(logging.WARNING, "failed", code=error.code, error=error)


if __name__ == "__main__":
    main()
