"""The folder into which an engine without a plans directory compiles what it needs.

Its name is a digest of the compiler, of the layout files that are shipped and of the engine's own: another version, or
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

# Packages that a plan's text depends on, and the suffixes of their files.
SOURCES = ("compiler", "dsl", "layouts", "plan")
SUFFIXES = (".py", ".lark", ".j2", ".json", ".yaml")
LAYOUTS, PLANS, ABOUT = "layouts", "plans", "README.txt"
TEXT = "kvplan compiled these plans for engines of this machine. Remove this folder when none of them runs.\n"


def cache_folder(layouts: Path | None, own: Mapping[str, str]) -> Path:
    """The folder for plans of the shipped layout files, those in `layouts`, and the texts `own` by file name.

    It is made, with `own` in its folder LAYOUTS. Raises ConnectorError (I009) if it cannot be written, or others can.
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
    """`$XDG_CACHE_HOME/kvplan`, without an absolute path there `~/.cache/kvplan`."""
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
    """The digest of kvplan's code and layout files as they are on this machine: one version number has many states."""
    package, digest = Path(kvplan.__file__).parent, sha256()
    files = (path for room in SOURCES for path in (package / room).rglob("*") if path.suffix in SUFFIXES)
    for name, data in _contents(sorted(files)):
        digest.update(sha256(name.encode()).digest() + sha256(data).digest())
    return digest.hexdigest()


def _contents(files: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for path in files:
        yield path.name, path.read_bytes()


def _check_owner(folder: Path) -> None:
    """Raises PermissionError if another user may put plans there: they say which bytes are moved."""
    about = os.stat(folder)
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{folder} belongs to another user, or every user may write it")


def _unusable(folder: Path, why: str) -> ConnectorError:
    help = 'set XDG_CACHE_HOME to a folder that only this user can write, or give "plans": a plans directory'
    return ConnectorError("I009", f"plans cannot be compiled into the cache folder {folder}: {why}", help)
