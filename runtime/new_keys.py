"""Files of a new key pair: which names they may have, and that none is ever overwritten."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kvplan.runtime.errors import KeysError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_new(name: str, paths: Iterable[Path]) -> None:
    """Raises KeysError where a name is none of keys, or one of the paths is there."""
    if not NAME.fullmatch(name):
        raise KeysError(f"{name!r} is no name of keys: use letters, digits, dots, dashes and underscores")
    for path in paths:
        if path.exists() or path.is_symlink():
            raise KeysError(f"{path} exists: remove it first, or use another name")
