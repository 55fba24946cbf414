"""A process that saves, and is killed at a step."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.store.engines import keys_of, save

from kvplan.remote.folder import RemoteFolder
from kvplan.store import objects
from kvplan.store import store as stores
from kvplan.store.index import StoreIndex
from kvplan.store.store import Store

MODEL, SIDE, LENGTH = "toy-mamba2", "tp=2", 7
READY = "tests.store.to_be_killed"


def half(fd: int, pages: list[memoryview], at: int) -> int:
    """A write of which only the first bytes arrive."""
    return os.write(fd, bytes(pages[0])[: pages[0].nbytes // 2])


# The last action of each step: the patched call, and the part of it that still runs.
STEPS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "before a file is made": (os, "open", lambda *_: None),
    "within a write": (os, "pwritev", half),
    "before a file is synced": (os, "fsync", lambda *_: None),
    "before a file has its name": (Path, "rename", lambda *_: None),
    "after a file has its name": (Path, "rename", Path.rename),
    "before a folder is synced": (objects, "_sync_folder", lambda *_: None),
    "before the index has it": (StoreIndex, "put", lambda *_: None),
    "after the index has it": (StoreIndex, "put", StoreIndex.put),
}

REMOTE_STEPS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "before an object is sent": (RemoteFolder, "write", lambda *_: None),
    "after an object is sent": (RemoteFolder, "write", RemoteFolder.write),
    "before the index has it": STEPS["before the index has it"],
    "after the index has it": STEPS["after the index has it"],
}


def kill_at(step: str, call: int) -> None:
    """This process ends at the `call`th time that it comes to a step."""
    where, name, last = {**STEPS, **REMOTE_STEPS}[step]
    usual, left = getattr(where, name), [call]

    def patched(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0]:
            return usual(*arguments, **options)
        last(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(where, name, patched)


def ended(place: str, step: str, call: int) -> int | None:
    """How a process ends that saves to a folder or URL and is killed; None where it does not within two minutes.

    Each is forked from one that has imported what it needs, and runs nothing else.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([READY])
    process = context.Process(target=main, args=(place, step, call))
    process.start()
    process.join(120)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


def main(folder: str, step: str, call: int) -> None:
    engine = importlib.import_module(READY).ENGINE
    store = Store.at(folder) if "://" in folder else Store.open(folder)
    # In three turns, each with names and entries of its own.
    stores.WRITTEN = 3
    kill_at(step, call)
    save(store, engine, keys_of(LENGTH))
