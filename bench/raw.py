"""NIXL by hand, without kvplan: what the runtime is measured against."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt


class Raw:
    """One agent over one piece of host memory, which it reads from a peer as a single request."""

    def __init__(self, api: Any, name: str, memory: npt.NDArray[np.uint8]) -> None:
        config = api.nixl_agent_config(
            enable_prog_thread=False, backends=["UCX"], sync_mode=api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        )
        self._agent = api.nixl_agent(name, config)
        self._row = np.array([[memory.ctypes.data, memory.nbytes, 0]], dtype=np.uint64)
        self._registered = self._agent.register_memory(self._row, "DRAM")
        self._lists: tuple[Any, Any] | None = None
        self._one = np.zeros(1, dtype=np.int32)

    def card(self) -> tuple[bytes, int]:
        """What a peer needs: NIXL's metadata and the memory's address."""
        return self._agent.get_agent_metadata(), int(self._row[0, 0])

    def meet(self, card: tuple[bytes, int]) -> None:
        """Prepare to read from the peer whose card this is."""
        metadata, address = card
        peer = self._agent.add_remote_agent(metadata).decode()
        remote = self._row.copy()
        remote[0, 0] = address
        local = self._agent.prep_xfer_dlist("NIXL_INIT_AGENT", self._row, "DRAM")
        self._lists = local, self._agent.prep_xfer_dlist(peer, remote, "DRAM")

    def read(self, seconds: float = 30.0) -> None:
        """Read all of the peer's memory as one request. Raises TimeoutError after `seconds`."""
        assert self._lists is not None, "meet() comes first"
        local, remote = self._lists
        handle = self._agent.make_prepped_xfer("READ", local, self._one, remote, self._one)
        state, end = self._agent.transfer(handle), time.monotonic() + seconds
        while state != "DONE":
            if time.monotonic() > end:
                raise TimeoutError(f"one request of {self._row[0, 1]} bytes is still {state} after {seconds} s")
            state = self._agent.check_xfer_state(handle)
        self._agent.release_xfer_handle(handle)

    def poll(self) -> None:
        """Let NIXL make progress; a peer that never polls is never reached."""
        self._agent.get_new_notifs()
