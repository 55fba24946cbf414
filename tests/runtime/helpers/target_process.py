"""A process whose memory is read: prints its metadata and address, polls NIXL, and does what its input says."""

from __future__ import annotations

import ctypes
import mmap
import select
import sys

import numpy as np
from tests.runtime.helpers.agents import pattern, region

from kvplan.runtime import Nixl


def main(size: int) -> None:
    memory = mmap.mmap(-1, size)
    array = np.frombuffer(memory, np.uint8)
    array[:] = pattern(size)
    owner = Nixl("owner")
    owner.register(region(array), "DRAM")
    address = array.ctypes.data
    print(owner.metadata().hex(), address, flush=True)
    while True:
        owner.progress()
        ready, _, _ = select.select([sys.stdin], [], [], 0.001)
        if ready and not obey(sys.stdin.readline().strip(), owner, address, size):
            return


def obey(word: str, owner: Nixl, address: int, size: int) -> bool:
    if word == "deregister":
        owner.deregister()
    if word == "unmap":
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0
    print(word, flush=True)
    return bool(word)


if __name__ == "__main__":
    main(int(sys.argv[1]))
