"""A process that writes to a target's memory again and again until it is killed."""

from __future__ import annotations

import sys

import numpy as np
from tests.runtime.helpers.agents import progressed, region, scattered, units

from kvplan.runtime import Nixl


def main(metadata: str, address: int, size: int) -> None:
    unit, array = 1 << 12, np.zeros(size, np.uint8)
    agent = Nixl("writer")
    agent.register(region(array), "DRAM")
    peer = agent.add_peer(bytes.fromhex(metadata))
    local = agent.prepare(None, units(array, unit), "DRAM")
    remote = agent.prepare(peer, np.array([[address, unit, 0, unit, size // unit]]), "DRAM")
    at = scattered(size // unit)
    while True:
        handle = agent.post("WRITE", peer, local, at, remote, at)
        progressed(handle.poll, agent)
        handle.release()
        print("moved", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
