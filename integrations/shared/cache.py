"""The folder into which an engine without a plans directory compiles what it needs.

Its name is a digest of the compiler, the shipped layout files and the engine's own, so that another version, or
another layout of the same name, has another folder. Files are written whole or not at all.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import kvplan
from kvplan.dsl.files.folders import folder_files
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.plan.errors import PlanIndexError
from kvplan.plan.files.folder import write

# Packages that determine a plan's text, and the suffixes of their files.
SOURCES = ("compiler", "dsl", "layouts", "plan")
SUFFIXES = (".py", ".lark", ".j2", ".json", ".yaml")
LAYOUTS, PLANS, ABOUT = "layouts", "plans", "README.txt"
TEXT = "kvplan compiled these plans for engines of this machine. Remove this folder when none of them runs.\n"


def cache_folder(layouts: Path | None, own: Mapping[str, str]) -> Path:
    """Return the folder for plans of the shipped layout files, those in `layouts`, and the texts `own` by file name.

    Make it, with `own` in its folder LAYOUTS. Raises ConnectorError (I009) if it is not writable, or others may write
    it.
    """
    root = _root(os.environ)
    folder = root / _key(layouts, own)
    try:
        if own:
            write(folder / LAYOUTS, own, own)
        write(folder, {ABOUT: TEXT}, [ABOUT])
        for each in (root, folder):
            _check_owner(each)
    except (OSError, PlanIndexError) as error:
        raise _unusable(folder, str(error)) from error
    return folder


def _root(environment: Mapping[str, str]) -> Path:
    """Return `$XDG_CACHE_HOME/kvplan`, or `~/.cache/kvplan` without an absolute path in that variable."""
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "kvplan"
    try:
        return Path.home() / ".cache" / "kvplan"
    except RuntimeError as error:
        raise _unusable(Path("~/.cache/kvplan"), str(error)) from error


def _key(layouts: Path | None, own: Mapping[str, str]) -> str:
    digest = sha256(_compiler().encode())
    files = sorted(folder_files(layouts).layouts) if layouts is not None else []
    for name, data in (*_contents(files), *((name, own[name].encode()) for name in sorted(own))):
        digest.update(sha256(name.encode()).digest() + sha256(data).digest())
    return digest.hexdigest()[:16]


@cache
def _compiler() -> str:
    """Return the digest of kvplan's code and layout files on this machine, as they may differ within a version."""
    package, digest = Path(kvplan.__file__).parent, sha256()
    files = (path for room in SOURCES for path in (package / room).rglob("*") if path.suffix in SUFFIXES)
    for name, data in _contents(sorted(files)):
        digest.update(sha256(name.encode()).digest() + sha256(data).digest())
    return digest.hexdigest()


def _contents(files: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for path in files:
        yield path.name, path.read_bytes()


def _check_owner(folder: Path) -> None:
    """Raises PermissionError if another user may put plans there, because plans determine which bytes move."""
    about = os.stat(folder)
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{folder} belongs to another user, or every user may write it")


def _unusable(folder: Path, why: str) -> ConnectorError:
    help = 'set XDG_CACHE_HOME to a folder that only this user can write, or give "plans": a plans directory'
    return ConnectorError("I009", f"plans cannot be compiled into the cache folder {folder}: {why}", help)
