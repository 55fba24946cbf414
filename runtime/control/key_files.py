"""Public keys of peers in certificate files and folders, read again when they change: keys come and go at run time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

from kvplan.plan.files.index import Stamp, stamp
from kvplan.runtime.errors import KeysError
from kvplan.runtime.ops import logs

SUFFIX = ".key"
# Seconds for which what was seen is believed, however many connections ask.
PAUSE = 1.0


class PeerFiles:
    """Certificate files, and folders of which every NAME.key counts but one's `own`. Safe to use from threads.

    `read` gives the public key of a file, or raises KeysError. Once begun, a file that is none lets nobody in, is
    logged, and is no error; nor is one that is gone.
    """

    def __init__(self, places: tuple[Path, ...], own: bytes, read: Callable[[Path], bytes]) -> None:
        """Raises KeysError where a file is no certificate of a peer."""
        self._places, self._own, self._read = places, own, read
        self._lock, self._believed_until = Lock(), 0.0
        self._files = {path: (_stamp(path), read(path)) for path in self._paths()}
        self._keys = self._peers()

    def keys(self) -> frozenset[bytes]:
        """The keys that are there now, or were within the last second."""
        with self._lock:
            if time.monotonic() >= self._believed_until:
                self._look()
                self._believed_until = time.monotonic() + PAUSE
            return self._keys

    def _look(self) -> None:
        self._files = {path: self._seen(path) for path in self._paths()}
        before, self._keys = self._keys, self._peers()
        if before != self._keys:
            new, gone = (",".join(sorted(key.decode() for key in keys)) for keys in self._changes(before))
            logs.event(logs.INFO, "keys changed", new=new, gone=gone, peers=len(self._keys))

    def _changes(self, before: frozenset[bytes]) -> tuple[frozenset[bytes], frozenset[bytes]]:
        return self._keys - before, before - self._keys

    def _seen(self, path: Path) -> tuple[Stamp | None, bytes]:
        """What shows that a file has changed, and its key, empty where it has none; read only where it has changed."""
        now = _stamp(path)
        if path in self._files and self._files[path][0] == now:
            return self._files[path]
        try:
            return now, self._read(path)
        except KeysError as error:
            logs.event(logs.WARNING, "key file ignored", path=path, error=error)
            return now, b""

    def _peers(self) -> frozenset[bytes]:
        """A file that is named counts whosever it is; of a folder, others' keys."""
        return frozenset(
            key for path, (_, key) in self._files.items() if key and (path in self._places or key != self._own)
        )

    def _paths(self) -> Iterator[Path]:
        for place in self._places:
            if place.is_dir():
                yield from sorted(place.glob(f"*{SUFFIX}"))
            else:
                yield place


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp(path.stat())
    except OSError:
        return None
