"""Which weights a LoRA has, as far as an engine's scheduler can tell: its name stays when its weights change."""

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
# What changes when a file of an adapter is replaced or written: name, time, size, inode.
Stamps = tuple[tuple[str, int, int, int], ...]


def nowhere(name: str) -> str | None:
    """No folder: what is not a path is not on this machine."""
    return None


def adapter_identity(lora: Any, locate: Callable[[str], str | None] = nowhere) -> str:
    """What names the weights of a LoRARequest: a digest of its files if they are on this machine, else its path.

    `locate` finds the folder of one that is named as the hub does. Files are looked at again for every request, and
    read again when one has changed.
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
    """The digest of an adapter's weights and of how they are scaled; empty if the folder has no weights."""
    weights = revision_of(Path(folder))
    config = Path(folder, CONFIG)
    scaled = config.read_bytes() if config.is_file() else b""
    return sha256(weights.encode() + scaled).hexdigest()[:32] if weights else ""
