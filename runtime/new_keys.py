"""Files of a new key pair: their allowed names, and a write that is atomic and never overwrites a file."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from kvplan.runtime.errors import KeysError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def write_pair(folder: Path, public: str, secret: str, name: str, write: Callable[[Path], object]) -> tuple[Path, Path]:
    """Have `write` make the files NAME + `public` and NAME + `secret`, and return their paths in `folder`.

    Only the owner may read the secret file. Raises KeysError if the name is invalid, or if either file exists or cannot
    be written.
    """
    if not NAME.fullmatch(name):
        raise KeysError(f"{name!r} is no name of keys: use letters, digits, dots, dashes and underscores")
    paths = folder / f"{name}{public}", folder / f"{name}{secret}"
    for path in paths:
        if path.exists() or path.is_symlink():
            raise KeysError(f"{path} exists: remove it first, or use another name")
    try:
        _write(paths, write)
    except OSError as error:
        raise KeysError(f"keys cannot be written: {error}") from error
    return paths


def _write(paths: tuple[Path, Path], write: Callable[[Path], object]) -> None:
    """Make both files in a private folder, then link them to their names. Raises OSError if a name is taken."""
    public, secret = paths
    public.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".keys-", dir=public.parent) as hidden:
        write(Path(hidden))
        for path, mode in ((secret, 0o600), (public, 0o644)):
            made = Path(hidden, path.name)
            made.chmod(mode)
            os.link(made, path)
