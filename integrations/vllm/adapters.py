"""The weights of a LoRA, as far as an engine's scheduler can identify them: its name stays when its weights change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvplan.runtime.control.identity import revision_of

CONFIG = "adapter_config.json"
MOST = 256
# Values that change when a file of an adapter is replaced or written: name, time, size, inode.
Stamps = tuple[tuple[str, int, int, int], ...]


def nowhere(name: str) -> str | None:
    """Return None: a name that is not a path is not on this machine."""
    return None


def adapter_identity(lora: Any, locate: Callable[[str], str | None] = nowhere) -> str:
    """Identify the weights of a LoRARequest: by a digest of its files if they are on this machine, else by its path.

    `locate` finds the folder of a hub name. Every request checks the files, and reads them again if one has
    changed.
    """
    path = str(getattr(lora, "lora_path", ""))
    with suppress(OSError):
        folder = _folder(path) or locate(path)
        digest = _digest(folder, tuple(_stamps(folder))) if folder is not None else ""
        if digest:
            return f"files {digest}"
    return f"name {lora.lora_name} path {path}"


def _folder(path: str) -> str | None:
    local = os.path.expanduser(path)
    return local if os.path.isdir(local) else None


def _stamps(folder: str) -> Iterator[tuple[str, int, int, int]]:
    for name in sorted(os.listdir(folder)):
        about = os.stat(os.path.join(folder, name))
        yield name, about.st_mtime_ns, about.st_size, about.st_ino


@lru_cache(MOST)
def _digest(folder: str, stamps: Stamps) -> str:
    """Return the digest of an adapter's weights and their scaling; empty if the folder has no weights."""
    weights = revision_of(Path(folder))
    config = Path(folder, CONFIG)
    scaled = config.read_bytes() if config.is_file() else b""
    return sha256(weights.encode() + scaled).hexdigest()[:32] if weights else ""
