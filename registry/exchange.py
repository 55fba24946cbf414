"""Plans at a URL that fsspec supports: one file for each, named by its SHA-256, and one signed index."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kvplan.plan.errors import PlanIndexError, PlanRemoteError, PlanSignatureError
from kvplan.plan.files import folder, index
from kvplan.plan.files.index import IndexEntry
from kvplan.plan.files.loader import loaded
from kvplan.registry.signing import SignedIndex, SigningKey, TrustedKeys
from kvplan.remote.folder import RemoteFolder
from kvplan.remote.urls import without_credentials

SIGNED = "index.signed.json"
# The file, beside a plans directory's index, that records the last pull.
RECORD = "pulled.json"
ELSEWHERE = "give another directory (`kvplan pull URL -o DIRECTORY`)"
# Seconds for a whole pull or push.
PATIENCE = 60.0
# The most bytes of an envelope, which has the index as nested text: a quote takes up to four bytes there.
LARGEST = 4 * index.LARGEST
T = TypeVar("T")
now = time.time


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The result of a push or a pull: the plans that were copied, all plans of the index, and its number."""

    copied: tuple[str, ...]
    plans: tuple[str, ...]
    serial: int


def push(
    source: Path,
    url: str,
    key: SigningKey,
    prune: bool = False,
    seconds: float = PATIENCE,
    trusted: TrustedKeys | None = None,
    signed_for: str | None = None,
) -> Exchanged:
    """Put a directory's plans at `url`, and sign the index of these and of those already there.

    Plans are written first, the index last. With `prune` the index has only the directory's plans. It is signed for the
    place that `url` names, or for `signed_for`, and a pull for another place refuses it. Raises PlanIndexError if the
    directory's plans differ from its index, PlanSignatureError if neither `key` nor a `trusted` key signed the index
    already there, PlanRemoteError.
    """
    return _run_within(seconds, url, lambda: _push(source, SignedFolder(url, signed_for), key, prune, trusted))


def pull(
    url: str, target: Path, trusted: TrustedKeys, seconds: float = PATIENCE, signed_for: str | None = None
) -> Exchanged:
    """Copy the plans at `url` into a plans directory, all or none. Its index then names only these.

    `signed_for` is the place that the index was signed for, if `url` is another way to it, or a mirror. Raises
    PlanSignatureError if the index is not signed by a trusted key, is signed for another place, is older than the last
    one pulled, or pins other bytes than those at `url`; PlanIndexError if the directory has plans from elsewhere, or
    cannot be written; PlanRemoteError.
    """
    return _run_within(seconds, url, lambda: _pull(SignedFolder(url, signed_for), target, trusted))


class SignedFolder(RemoteFolder):
    """A folder of plans at a URL, and the place that its index is signed for."""

    def __init__(self, url: str, signed_for: str | None) -> None:
        super().__init__(url)
        self.signed_for = self.place if signed_for is None else signed_for.rstrip("/")


def _push(source: Path, remote: SignedFolder, key: SigningKey, prune: bool, trusted: TrustedKeys | None) -> Exchanged:
    texts = {_with_hash(one): data for one, data in _checked_entries(source)}
    # The keys whose index a push may extend.
    known = TrustedKeys((*key.trusted().keys, *(trusted.keys if trusted else ())))
    before = _last_pushed(remote, known, prune)
    old = () if before is None or prune else index.parse(before.index.encode(), f"{remote.url}/{SIGNED}")
    pins = {one.sha256 for one in texts}
    every = [*texts, *(one for one in old if one.sha256 not in pins)]
    # If files are not written atomically, a killed push may have left a shorter one.
    new = [one for one in texts if remote.size(_file(one)) != len(texts[one])]
    for one in new:
        remote.write(_file(one), texts[one])
    # From the clock, so that numbers grow even if the index was lost: engines refuse numbers below the last one pulled.
    serial = max(int(now()), 0 if before is None else before.serial + 1)
    envelope = key.sign(SignedIndex(index.render(every), remote.signed_for, serial))
    remote.write(SIGNED, envelope)
    if remote.read(SIGNED, LARGEST) != envelope:
        raise PlanRemoteError(f"{remote.url}: somebody else pushed at the same time: push again")
    return _result(new, every, serial)


def _last_pushed(remote: SignedFolder, trusted: TrustedKeys, prune: bool) -> SignedIndex | None:
    """Return the index that a push extends, None if there is none, or if it is invalid and `prune` discards it."""
    try:
        return _read_index(remote, trusted)
    except PlanSignatureError as error:
        if prune:
            return None
        raise PlanSignatureError(f"{error}; or --prune, to go on without the plans that it names") from error


def _checked_entries(source: Path) -> Iterator[tuple[IndexEntry, bytes]]:
    """Yield the entries of a directory's index with the bytes they pin. Raises PlanIndexError if the bytes differ."""
    found = index.contents(source, index.NAME)
    if found is None:
        raise PlanIndexError(f"{source} has no {index.NAME}: give the directory that `kvplan compile -o` wrote to")
    for one in index.parse(found[1], str(source / index.NAME)):
        data = index.contents(source, one.path)
        name = str(source / one.path)
        if data is None or index.entry(one.path, data[1], loaded(data[1], name), one.unusual) != one:
            raise PlanIndexError(f"{name} is not as its index says: {index.AGAIN}")
        yield one, data[1]


def _with_hash(one: IndexEntry) -> IndexEntry:
    """Return an entry with its hash in the path, so that two releases fit side by side and a pull replaces no plan."""
    stem, pin = one.path.removesuffix(".py"), one.sha256[:16]
    return one if stem.endswith(f".{pin}") else replace(one, path=f"{stem}.{pin}.py")


def _pull(remote: SignedFolder, target: Path, trusted: TrustedKeys) -> Exchanged:
    """Pull, and begin again if another pull has changed the directory at the same time."""
    done = None
    while done is None:
        last = _last_serial(target, remote.url)
        signed = _read_index(remote, trusted)
        if signed is None:
            raise PlanRemoteError(f"{remote.url} has no {SIGNED}: `kvplan push` writes one")
        if signed.serial < last:
            told = f"{remote.url} has index {signed.serial}, index {last} was pulled before"
            raise PlanSignatureError(f"{told}: somebody put an old one there")
        done = fetch_missing(remote, target, signed)
    return done


def fetch_missing(remote: RemoteFolder, target: Path, signed: SignedIndex) -> Exchanged | None:
    """Fetch missing plans and write them. Return None if the directory changed during the fetch.

    The directory is locked only after the fetch, so that other processes do not wait for it.
    """
    entries = index.parse(signed.index.encode(), f"{remote.url}/{SIGNED}")
    new = [one for one in entries if not _is_there(target, one)]
    texts = {one.path: _fetch(remote, one).decode() for one in new}
    with folder.locked(target):
        whole = all(one.path in texts or _is_there(target, one) for one in entries)
        if not whole or _last_serial(target, remote.url) > signed.serial:
            return None
        _put(target, texts, remote.url, signed)
    return _result(new, entries, signed.serial)


def _put(target: Path, texts: Mapping[str, str], url: str, signed: SignedIndex) -> None:
    """Write missing files. The caller holds the directory's lock."""
    record = json.dumps({"format": 1, "url": url, "serial": signed.serial}) + "\n"
    # The record comes first, so that after a killed pull the next one never accepts an older index.
    whole = {RECORD: record, **texts, index.NAME: signed.index}
    stale = [path for path in whole if not _has_text(target, path, whole[path])]
    if stale:
        folder.put(target, whole, stale)


def _has_text(target: Path, path: str, text: str) -> bool:
    found = index.contents(target, path)
    return found is not None and found[1] == text.encode()


def _read_index(remote: SignedFolder, trusted: TrustedKeys) -> SignedIndex | None:
    """Return the signed index. Read it again if it is invalid: it may have been replaced during the read."""
    name, envelope = f"{remote.url}/{SIGNED}", remote.read(SIGNED, LARGEST)
    if envelope is None:
        return None
    try:
        return trusted.opened(envelope, name, remote.signed_for)
    except PlanSignatureError:
        again = remote.read(SIGNED, LARGEST)
        if again is None or again == envelope:
            raise
        return trusted.opened(again, name, remote.signed_for)


def _last_serial(target: Path, url: str) -> int:
    """Return the number of the index that was last pulled into a directory, 0 before the first pull.

    Raises PlanIndexError if the directory has plans from elsewhere.
    """
    found = index.contents(target, RECORD)
    if found is None:
        if index.contents(target, index.NAME) is not None:
            raise PlanIndexError(f"{target} has plans that were compiled there: {ELSEWHERE}")
        return 0
    try:
        record: dict[str, Any] = json.loads(found[1])
        before, last = without_credentials(str(record["url"])), int(record["serial"])
    except (ValueError, KeyError, TypeError) as error:
        raise PlanIndexError(f"{target / RECORD} cannot be read: {ELSEWHERE}") from error
    if before != url:
        raise PlanIndexError(f"{target} has the plans of {before}: {ELSEWHERE}")
    return last


def _is_there(target: Path, one: IndexEntry) -> bool:
    found = index.contents(target, one.path)
    return found is not None and index.pinned(found[1]) == one.sha256


def _fetch(remote: RemoteFolder, one: IndexEntry) -> bytes:
    """Fetch the bytes that an entry pins. Raises PlanRemoteError, PlanSignatureError."""
    data = remote.read(_file(one), index.LARGEST)
    if data is None:
        raise PlanRemoteError(f"{remote.url}/{_file(one)} is not there, {one.path}: push it again")
    if index.pinned(data) != one.sha256:
        raise PlanSignatureError(f"{remote.url}/{_file(one)} was altered: find out by whom, remove it, and push again")
    return data


def _file(one: IndexEntry) -> str:
    """Return a plan's file name, which is its hash, so that a file never changes."""
    return f"{one.sha256}.py"


def _result(new: Iterable[IndexEntry], every: Iterable[IndexEntry], serial: int) -> Exchanged:
    return Exchanged(tuple(one.path for one in new), tuple(one.path for one in every), serial)


def _run_within(seconds: float, url: str, call: Callable[[], T]) -> T:
    """Return a call's result, or raise PlanRemoteError after `seconds`, because not every protocol has a deadline."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # raised again in the waiting thread
            done.set_exception(error)

    threading.Thread(target=run, name="kvplan-remote", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        if done.done():
            return done.result()
        told = f"{without_credentials(url)} has not answered within {seconds:g} s: ask again, or give it more time"
        raise PlanRemoteError(told) from None
