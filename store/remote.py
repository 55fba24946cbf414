"""Objects at a URL: S3, and all that fsspec supports. An object appears only when it is complete.

Object stores guarantee that, even for multipart uploads. A folder of files, such as over SFTP, may show half an object,
which is refused like any damaged one. Nothing is locked: if two processes write one object, the last write counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from kvplan.plan.files.folder import HALF
from kvplan.remote.folder import RemoteFolder
from kvplan.store.bucket import NixlBucket
from kvplan.store.errors import DamagedObjectError, MissingObjectError, StoreFileError
from kvplan.store.header import Bytes, ObjectHeader, encoded, read_header
from kvplan.store.objects import ABANDONED, AT_ONCE, REFUSED, NewObject, at_once
from kvplan.store.pages import Place, read_body

# The most bytes of one request.
REQUEST = 16 << 20


@dataclass(frozen=True, slots=True)
class RemoteObjects:
    """Objects as files of a folder at a URL. A given `bucket` moves the pages.

    Raises StoreFileError if `bucket` is not the URL's.
    """

    folder: RemoteFolder
    bucket: NixlBucket | None = None
    threads: ClassVar[int] = AT_ONCE

    def __post_init__(self) -> None:
        if self.bucket is not None and not self.folder.path("").startswith(f"{self.bucket.bucket}/"):
            raise StoreFileError(f"{self.folder.url} is not in bucket {self.bucket.bucket}: give NixlBucket its bucket")

    def put(self, objects: Sequence[NewObject]) -> list[ObjectHeader]:
        return at_once(self.threads, self._put, objects)

    def header(self, name: str) -> ObjectHeader:
        return self._header(name)[0]

    def read(self, name: str, place: Place) -> None:
        header, offset = self._header(name)
        try:
            read_body(header, place(header), partial(self._data, name, offset), REQUEST)
        except DamagedObjectError:
            # Another process may have replaced the object between two requests.
            if self.header(name) != header:
                raise MissingObjectError(f"object {name} has been replaced: ask again") from None
            raise

    def names(self) -> Iterator[str]:
        yield from (name for name in self.folder.names() if _is_object(name))

    def written(self, name: str) -> float:
        return self.folder.changed(name)

    def gone(self, names: Sequence[str]) -> list[str]:
        # Each check would be a request, and other machines remove objects without this index anyway.
        return []

    def remove(self, name: str) -> None:
        self.folder.remove(name)

    def set_aside(self, name: str) -> None:
        try:
            self.folder.rename(name, f"{name}{REFUSED}")
        except StoreFileError:
            # Every read still refuses the object.
            return

    def sweep(self, age: float = ABANDONED) -> int:
        aside = [name for name in self.folder.names() if name.endswith((REFUSED, HALF))]
        old = [name for name in aside if (changed := self.folder.changed(name)) and time.time() - changed >= age]
        for name in old:
            self.folder.remove(name)
        return len(old)

    def _put(self, made: NewObject) -> ObjectHeader:
        name, head = made.header.name, made.head_bytes
        body = np.empty(head + made.header.size, np.uint8)
        header = made.filled(body[head:])
        body[:head] = np.frombuffer(encoded(header), np.uint8)
        if self.bucket is None:
            self.folder.write(name, body.tobytes())
            return header
        self.bucket.write(self.folder.path(name), body)
        if self.folder.size(name) != len(body):
            text = "NIXL has written an object, and it is not there: give NixlBucket the endpoint that the URL has"
            raise StoreFileError(f"{self.folder.url}/{name}: {text}")
        return header

    def _header(self, name: str) -> tuple[ObjectHeader, int]:
        size = self.folder.size(name)
        if size is None:
            raise MissingObjectError(f"there is no object {name}")
        return read_header(partial(self._span, name, 0), size, name)

    def _data(self, name: str, offset: int, low: int, high: int) -> Bytes:
        start, size = offset + low, high - low
        if self.bucket is not None:
            data = self.bucket.read(self.folder.path(name), start, size)
        else:
            data = np.frombuffer(self._span(name, start, size), np.uint8)
        if len(data) != size:
            raise DamagedObjectError(f"object {name} ends before its pages do: it was cut off")
        return data

    def _span(self, name: str, start: int, size: int) -> bytes:
        data = self.folder.span(name, start, size)
        if data is None:
            raise MissingObjectError(f"there is no object {name}")
        return data


def _is_object(name: str) -> bool:
    """Return whether a name is an object's: it has three parts, and is neither set aside nor half written."""
    return name.count("/") == 2 and not name.endswith((REFUSED, HALF))
