"""NIXL by hand, without kvplan: the reference for the runtime."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvplan.runtime.memory.arrays import describe

SECONDS = 30.0


class Raw:
    """One agent over one piece of memory, flat bytes of numpy's or torch's, which it reads from a peer in `spans`.

    By default it is one span.
    """

    def __init__(self, api: Any, name: str, memory: Any) -> None:
        config = api.nixl_agent_config(
            enable_prog_thread=False, backends=["UCX"], sync_mode=api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        )
        self._agent = api.nixl_agent(name, config)
        # Kept alive, so that writes there still have memory.
        self.memory, found = memory, describe(memory)
        self._base, self._size, self._mem_type = found.address, found.nbytes, found.mem_type
        self._registered = self._agent.register_memory(rows(self._base, self._size, self._size), self._mem_type)
        self._lists: tuple[Any, Any] | None = None
        self.spans = list[npt.NDArray[np.int32]]()

    def card(self) -> tuple[bytes, int]:
        """Return the card for a peer: NIXL's metadata and the memory's address."""
        return self._agent.get_agent_metadata(), self._base

    def meet(self, card: tuple[bytes, int], span: int = 0) -> None:
        """Prepare to read from the peer with this card, in spans of `span` bytes; 0 for all of it."""
        metadata, address = card
        peer = self._agent.add_remote_agent(metadata).decode()
        here, there = (rows(start, self._size, span or self._size) for start in (self._base, address))
        local = self._agent.prep_xfer_dlist("NIXL_INIT_AGENT", here, self._mem_type)
        self._lists = local, self._agent.prep_xfer_dlist(peer, there, self._mem_type)
        self.spans = [np.array([number], np.int32) for number in range(len(here))]

    def read(self, spans: Sequence[npt.NDArray[np.int32]] = (), seconds: float = SECONDS) -> None:
        """Read these of the `spans`, or all, each as a separate transfer, all of them in flight together.

        Raises TimeoutError after `seconds`.
        """
        self._move("READ", spans, seconds)

    def write(self, spans: Sequence[npt.NDArray[np.int32]] = (), seconds: float = SECONDS) -> None:
        """Write spans to the peer, like `read` reads them."""
        self._move("WRITE", spans, seconds)

    def _move(self, op: str, spans: Sequence[npt.NDArray[np.int32]] = (), seconds: float = SECONDS) -> None:
        assert self._lists is not None, "meet() comes first"
        local, remote = self._lists
        wanted = spans or self.spans
        handles = [self._agent.make_prepped_xfer(op, local, span, remote, span) for span in wanted]
        states, end = [self._agent.transfer(handle) for handle in handles], time.monotonic() + seconds
        for handle, state in zip(handles, states, strict=True):
            while state != "DONE":
                if time.monotonic() > end:
                    raise TimeoutError(f"of {len(handles)} transfers one is still {state} after {seconds} s")
                state = self._agent.check_xfer_state(handle)
            self._agent.release_xfer_handle(handle)

    def poll(self) -> None:
        """Let NIXL make progress: peers cannot reach an agent that never polls."""
        self._agent.get_new_notifs()


def rows(address: int, size: int, span: int) -> npt.NDArray[np.uint64]:
    """Return descriptors (address, bytes, device) of the consecutive whole spans in `size` bytes."""
    starts = address + np.arange(0, size - span + 1, span, dtype=np.uint64)
    return np.stack([starts, np.full_like(starts, span), np.zeros_like(starts)], axis=1)
