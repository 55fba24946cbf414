"""A plans directory on disk: one writer at a time locks it, and each file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kvplan.plan.errors import PlanIndexError

HALF = ".half"
PATIENCE = 60.0


def write(out: Path, texts: Mapping[str, str], paths: Iterable[str]) -> None:
    """Write `paths`, each whole or not at all, while no other process writes into `out`. Raises PlanIndexError."""
    with locked(out):
        put(out, texts, paths)


def put(out: Path, texts: Mapping[str, str], paths: Iterable[str]) -> None:
    """Write `paths` under the caller's lock: all of them, or none if one does not fit. Raises PlanIndexError.

    They are put in their places in the order given.
    """
    halves = {out / path: _half(out / path) for path in paths}
    try:
        _sweep({target.parent for target in halves})
        for path, half in zip(paths, halves.values(), strict=True):
            _fill(out / path, half, texts[path])
        for target, half in halves.items():
            half.replace(target)
        for folder in {target.parent for target in halves}:
            _sync(folder)
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        for half in halves.values():
            with suppress(OSError):
                half.unlink(missing_ok=True)


@contextmanager
def locked(out: Path, seconds: float = PATIENCE) -> Iterator[None]:
    """Make the directory and lock it against other compiles. Raises PlanIndexError if that takes too long."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise unwritable(out, error) from error
    try:
        _lock(out, handle, time.monotonic() + seconds)
        yield
    finally:
        os.close(handle)


def unwritable(out: Path, error: OSError) -> PlanIndexError:
    """Return the error for a plans directory that cannot be written."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return PlanIndexError(
            f"{out} cannot be written: {error.filename or out} is a file, or lies in one: name a directory"
        )
    about = f" ({error.filename})" if error.filename else ""
    return PlanIndexError(f"{out} cannot be written: {error.strerror}{about}")


def _lock(out: Path, handle: int, until: float) -> None:
    """Lock a directory. The lock ends with its process, however that ends. File systems without locks have none."""
    try:
        import fcntl
    except ImportError:
        return
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise PlanIndexError(f"{out} is held by another compile: wait for it, or end it") from error
            time.sleep(0.05)
        except OSError:
            return


def _half(target: Path) -> Path:
    return target.with_name(f".{target.name}{HALF}")


def _sweep(folders: Iterable[Path]) -> None:
    """Remove files that a killed compile left behind."""
    for folder in folders:
        for left in folder.glob(f".*{HALF}"):
            left.unlink()


def _fill(target: Path, half: Path, text: str) -> None:
    """Write the text to a file beside its place, and onto the disk."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with half.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Write new names onto the disk, if the system can do so for a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
