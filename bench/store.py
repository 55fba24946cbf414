"""Save and load through files and objects, against plain writes and reads of the same bytes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.bench.report import Row, skipped, within
from kvplan.bench.sample import interleave
from kvplan.bench.stage import filled, plan_of, shuffled

if TYPE_CHECKING:
    from kvplan.remote.folder import RemoteFolder
    from kvplan.store.bucket import NixlBucket
    from kvplan.store.files import Files
    from kvplan.store.store import Store

AREA = "stored caches"
MODEL, BLOCK, BLOCKS = "qwen3-0.6b", 256, 8
TOKENS = BLOCK * BLOCKS
CASES = (
    ("heads first, as they are stored", "tp=2"),
    ("tokens first", "tp=2,order=nhd"),
    ("tokens first, pages of one token", "engine=sglang,tp=2"),
)
# The most that a save and a load may take of a plain write's and read's time.
MOST_SAVE, MOST_LOAD = 1.3, 2.0
Bytes = npt.NDArray[np.uint8]
# The variable that names a folder for objects, because no server is started here.
PLACE = "KVPLAN_BENCH_STORE"
# A server may free removed objects only when it cleans up, so few pairs are written.
MOST_PAIRS = 5


@dataclass(frozen=True, slots=True)
class PlainCopies:
    """The reference for a store: pages, one row each, written as they are and read back."""

    write: Callable[[Bytes], object]
    read: Callable[[Bytes], object]


def measure(pairs: int) -> list[Row]:
    """Measure without a target. Files that are read are in the system's memory; a disk's own speed is left out."""
    return [*file_rows(pairs), *object_rows(os.environ.get(PLACE, ""), pairs)]


def file_rows(pairs: int) -> list[Row]:
    from kvplan.runtime.errors import NixlMissingError
    from kvplan.store.files import NixlFiles, PlainFiles

    rows = [row for name, side in CASES for row in _in_files(f"{name}, system calls", side, PlainFiles(), pairs)]
    try:
        files = NixlFiles()
    except NixlMissingError as error:
        return [*rows, skipped(AREA, str(error))]
    return [*rows, *_in_files(f"{CASES[0][0]}, NIXL POSIX", CASES[0][1], files, pairs)]


def _in_files(name: str, side: str, files: Files, pairs: int) -> list[Row]:
    from kvplan.store.store import Store

    with TemporaryDirectory() as folder, Store.open(Path(folder) / "store", files) as store:
        paths = [Path(folder) / str(number) for number in range(BLOCKS)]
        return _case(name, side, store, PlainCopies(partial(_write, paths), partial(_read, paths)), pairs)


def object_rows(url: str, pairs: int) -> list[Row]:
    """Return rows for objects of an S3 server, or of another URL, below a folder that is left empty."""
    from kvplan.remote.folder import RemoteFolder
    from kvplan.store.errors import StoreFileError

    if not url:
        return [skipped(AREA, f"{PLACE} names no folder of a bucket, s3://bucket/folder")]
    try:
        folder = RemoteFolder(f"{url}/{uuid.uuid4().hex}", StoreFileError)
        return _objects(url, folder, min(pairs, MOST_PAIRS))
    except StoreFileError as error:
        # A server may be missing or go away: rows of other areas must not be lost.
        return [skipped(AREA, str(error))]


def _objects(url: str, folder: RemoteFolder, pairs: int) -> list[Row]:
    from kvplan.runtime.errors import NixlMissingError

    rows = [row for name, side in CASES for row in _in_objects(f"{name}, fsspec", side, folder, None, pairs)]
    try:
        bucket = _bucket(url)
    except NixlMissingError as error:
        return [*rows, skipped(AREA, str(error))]
    name, side = CASES[0]
    return [*rows, *(_in_objects(f"{name}, NIXL OBJ", side, folder, bucket, pairs) if bucket else ())]


def _bucket(url: str) -> NixlBucket | None:
    """Return the bucket of a URL for NIXL, None if it is not S3's. Its endpoint is AWS_ENDPOINT_OVERRIDE's."""
    from kvplan.store.bucket import NixlBucket

    scheme, _, path = url.partition("://")
    if scheme != "s3":
        return None
    endpoint = os.environ.get("AWS_ENDPOINT_OVERRIDE", "")
    own = {"scheme": endpoint.partition(":")[0], "use_virtual_addressing": "false"} if endpoint else {}
    return NixlBucket(path.partition("/")[0], **own)


def _in_objects(name: str, side: str, folder: RemoteFolder, bucket: NixlBucket | None, pairs: int) -> list[Row]:
    """Compare with plain puts and gets by the same client, as many at once."""
    from kvplan.remote.folder import RemoteFolder
    from kvplan.store.objects import AT_ONCE
    from kvplan.store.store import Store

    plain = RemoteFolder(f"{folder.url}/plain")

    def put(number: int, page: Bytes) -> None:
        if bucket is None:
            plain.write(str(number), page.tobytes())
        else:
            bucket.write(plain.path(str(number)), page)

    def get(number: int, page: Bytes) -> None:
        path = plain.path(str(number))
        data = plain.span(str(number), 0, page.nbytes) if bucket is None else bucket.read(path, 0, page.nbytes)
        if data is None or len(data) != page.nbytes:
            raise FileNotFoundError(path)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        copies = PlainCopies(
            lambda pages: list(threads.map(put, range(BLOCKS), pages)),
            lambda pages: list(threads.map(get, range(BLOCKS), pages)),
        )
        try:
            with Store.at(f"{folder.url}/store", bucket=bucket) as store:
                return _case(name, side, store, copies, pairs)
        finally:
            for each in folder.names():
                folder.remove(each)


def _case(name: str, side: str, store: Store, plain: PlainCopies, pairs: int) -> list[Row]:
    from kvplan.store.engine import Loader, Saver
    from kvplan.store.keys import block_keys

    saves, loads = plan_of(MODEL, side, "engine=store"), plan_of(MODEL, "engine=store", side)
    keys, tables = block_keys(range(TOKENS), BLOCK), shuffled(saves.prefill, TOKENS)
    pools = [[filled(side, n, TOKENS) for n in range(len(side.workers))] for side in (saves.prefill, loads.decode)]
    saver = Saver(store, saves, pools[0], revision="bench")
    loader = Loader(store, loads, pools[1], revision="bench")
    pages = np.ones((BLOCKS, saver.save(keys, tables).bytes // BLOCKS), np.uint8)

    def save() -> None:
        store.remove([entry.name for entry in store.entries()])
        saver.save(keys, tables)

    saved = interleave(save, lambda: plain.write(pages), pairs)
    loaded = interleave(lambda: loader.load(keys, tables), lambda: plain.read(pages), pairs)
    saver.close()
    loader.close()
    return [within(AREA, f"save, {name}", saved, MOST_SAVE), within(AREA, f"load, {name}", loaded, MOST_LOAD)]


def _write(paths: Sequence[Path], pages: Bytes) -> None:
    """Write new files, synced like those of a store."""
    for path, page in zip(paths, pages, strict=True):
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            file.write(page.data)
            os.fsync(file.fileno())


def _read(paths: Sequence[Path], pages: Bytes) -> None:
    for path, page in zip(paths, pages, strict=True):
        with path.open("rb", buffering=0) as file:
            file.readinto(page.data)
