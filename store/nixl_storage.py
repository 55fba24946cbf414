"""NIXL's storage backends: an agent that moves pages between memory and files or objects."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kvplan.runtime.clock import now
from kvplan.runtime.errors import TransportError
from kvplan.runtime.transport.nixl import api
from kvplan.runtime.transport.nixl_handles import attempt, errors

SECONDS = 600.0
PAUSE = 50e-6


class NixlStorage:
    """An agent of one backend, whose storage has NIXL's memory type `kind`.

    Threads take turns. After a failure bytes may still move, so this refuses further calls and keeps the memory.
    """

    def __init__(self, name: str, backend: str, kind: str, parameters: Mapping[str, str]) -> None:
        module = api()
        self.name, self.bindings = f"{name}-{uuid.uuid4().hex}", module.nixlBind
        self._kind, self._turn, self._under_way = kind, Lock(), tuple[npt.NDArray[np.uint8], ...]()
        config = module.nixl_agent_config(enable_prog_thread=False, enable_listen_thread=False, backends=[])
        with errors(self.bindings):
            self._agent: Any = module.nixl_agent(self.name, config)
            self._agent.create_backend(backend, dict(parameters))

    def move(
        self,
        op: Literal["READ", "WRITE"],
        memory: Sequence[npt.NDArray[np.uint8]],
        places: Sequence[tuple[int, int]],
        whole: Sequence[tuple[int, int, int, str]],
    ) -> None:
        """Move pages of memory to or from `places`, (offset, device), in `whole` files: (0, bytes, device, name).

        Raises TransportError unless all pages were moved.
        """
        if not memory:
            return
        with self._turn:
            self._move(op, memory, places, whole)

    def _move(
        self,
        op: Literal["READ", "WRITE"],
        memory: Sequence[npt.NDArray[np.uint8]],
        places: Sequence[tuple[int, int]],
        whole: Sequence[tuple[int, int, int, str]],
    ) -> None:
        if self._under_way:
            kind = type(self).__name__
            raise TransportError(f"pages were not moved before, and may still be: make a new {kind}, and new memory")
        local = np.array([(page.ctypes.data, page.nbytes, 0) for page in memory], np.int64)
        remote = np.array([(at, page.nbytes, of) for page, (at, of) in zip(memory, places, strict=True)], np.int64)
        with errors(self.bindings), self._registered(local, "DRAM"), self._registered(list(whole), self._kind):
            there = self._agent.get_xfer_descs(remote, self._kind)
            handle = self._agent.initialize_xfer(op, self._agent.get_xfer_descs(local, "DRAM"), there, self.name)
            self._under_way = tuple(memory)
            self._wait(handle)
            self._under_way = ()
            self._agent.release_xfer_handle(handle)

    def _wait(self, handle: Any) -> None:
        end, state = now() + SECONDS, self._agent.transfer(handle)
        while state == "PROC":
            if now() > end:
                raise TransportError(f"pages were not moved within {SECONDS:g} s: look at the storage")
            time.sleep(PAUSE)
            state = self._agent.check_xfer_state(handle)
        if state != "DONE":
            raise TransportError(f"NIXL says {state} about pages of storage")

    @contextmanager
    def _registered(self, rows: Any, kind: str) -> Iterator[None]:
        registered = self._agent.register_memory(rows, kind)
        try:
            yield
        finally:
            attempt(f"deregistration of {kind}", self._agent.deregister_memory, registered)
