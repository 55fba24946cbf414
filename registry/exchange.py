"""Plans at a URL: one file for each, named by its SHA-256, and one signed index. Any place that fsspec knows."""

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
# What was pulled last into a plans directory, beside its index.
RECORD = "pulled.json"
ELSEWHERE = "give another directory (`kvplan pull URL -o DIRECTORY`)"
# Seconds for a whole pull or push.
PATIENCE = 60.0
# An envelope has the index as text in text, where a quote takes up to four bytes.
LARGEST = 4 * index.LARGEST
T = TypeVar("T")
now = time.time


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a push or a pull did: the plans that were copied, all plans of the index, and its number."""

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
    """Put a directory's plans at `url`, and sign the index of these and those that are there already.

    Plans first, the index last. With `prune` only these are in the index. It is signed for the place that `url` names,
    or for `signed_for`, and a pull that names another one refuses it. Raises PlanIndexError where the directory's
    plans are not as its index says, PlanSignatureError where what is there was signed neither by `key` nor by one that
    is `trusted`, PlanRemoteError.
    """
    return _within(seconds, url, lambda: _push(source, SignedFolder(url, signed_for), key, prune, trusted))


def pull(
    url: str, target: Path, trusted: TrustedKeys, seconds: float = PATIENCE, signed_for: str | None = None
) -> Exchanged:
    """Bring the plans at `url` into a plans directory, of which they are then all that its index names.

    All or none. `signed_for` is the place that the index was signed for, if `url` is another way to it, or a mirror.
    Raises PlanSignatureError where the index is not signed by a trusted key, or for another place, is older than the
    one that was pulled before, or pins other bytes than are there; PlanIndexError where the directory has plans of its
    own, or cannot be written; PlanRemoteError.
    """
    return _within(seconds, url, lambda: _pull(SignedFolder(url, signed_for), target, trusted))


class SignedFolder(RemoteFolder):
    """A folder of plans at a URL, and the place that its index is signed for."""

    def __init__(self, url: str, signed_for: str | None) -> None:
        super().__init__(url)
        self.signed_for = self.place if signed_for is None else signed_for.rstrip("/")


def _push(source: Path, remote: SignedFolder, key: SigningKey, prune: bool, trusted: TrustedKeys | None) -> Exchanged:
    texts = {_addressed(one): data for one, data in _checked(source)}
    # Whose index a push goes on from.
    known = TrustedKeys((*key.trusted().keys, *(trusted.keys if trusted else ())))
    before = _last_pushed(remote, known, prune)
    old = () if before is None or prune else index.parse(before.index.encode(), f"{remote.url}/{SIGNED}")
    pins = {one.sha256 for one in texts}
    every = [*texts, *(one for one in old if one.sha256 not in pins)]
    # One over which a push was killed is shorter, where files are not written at once.
    new = [one for one in texts if remote.size(_file(one)) != len(texts[one])]
    for one in new:
        remote.write(_file(one), texts[one])
    # By the clock, so that a lost index is no way back: who pulled a later one would refuse all that is counted from 1.
    serial = max(int(now()), 0 if before is None else before.serial + 1)
    envelope = key.sign(SignedIndex(index.render(every), remote.signed_for, serial))
    remote.write(SIGNED, envelope)
    if remote.read(SIGNED, LARGEST) != envelope:
        raise PlanRemoteError(f"{remote.url}: somebody else pushed at the same time: push again")
    return _exchanged(new, every, serial)


def _last_pushed(remote: SignedFolder, trusted: TrustedKeys, prune: bool) -> SignedIndex | None:
    """The index that a push goes on from, None where there is none, or one that cannot be read and is left out."""
    try:
        return _opened(remote, trusted)
    except PlanSignatureError as error:
        if prune:
            return None
        raise PlanSignatureError(f"{error}; or --prune, to go on without the plans that it names") from error


def _checked(source: Path) -> Iterator[tuple[IndexEntry, bytes]]:
    """The entries of a directory's index with the bytes they pin. Raises PlanIndexError where they are others."""
    found = index.contents(source, index.NAME)
    if found is None:
        raise PlanIndexError(f"{source} has no {index.NAME}: give the directory that `kvplan compile -o` wrote to")
    for one in index.parse(found[1], str(source / index.NAME)):
        data = index.contents(source, one.path)
        name = str(source / one.path)
        if data is None or index.entry(one.path, data[1], loaded(data[1], name), one.unusual) != one:
            raise PlanIndexError(f"{name} is not as its index says: {index.AGAIN}")
        yield one, data[1]


def _addressed(one: IndexEntry) -> IndexEntry:
    """An entry with a path that no other bytes have: two releases lie side by side, and a pull replaces no plan."""
    stem, pin = one.path.removesuffix(".py"), one.sha256[:16]
    return one if stem.endswith(f".{pin}") else replace(one, path=f"{stem}.{pin}.py")


def _pull(remote: SignedFolder, target: Path, trusted: TrustedKeys) -> Exchanged:
    """Again where others, who pull into the same directory, have changed it meanwhile."""
    done = None
    while done is None:
        last = _last(target, remote.url)
        signed = _opened(remote, trusted)
        if signed is None:
            raise PlanRemoteError(f"{remote.url} has no {SIGNED}: `kvplan push` writes one")
        if signed.serial < last:
            told = f"{remote.url} has index {signed.serial}, index {last} was pulled before"
            raise PlanSignatureError(f"{told}: somebody put an old one there")
        done = _brought(remote, target, signed)
    return done


def _brought(remote: RemoteFolder, target: Path, signed: SignedIndex) -> Exchanged | None:
    """Fetch what is missing and write it; None where the directory has changed while it was fetched.

    Nothing is fetched while others wait for the directory.
    """
    entries = index.parse(signed.index.encode(), f"{remote.url}/{SIGNED}")
    new = [one for one in entries if not _is_there(target, one)]
    texts = {one.path: _fetched(remote, one).decode() for one in new}
    with folder.locked(target):
        whole = all(one.path in texts or _is_there(target, one) for one in entries)
        if not whole or _last(target, remote.url) > signed.serial:
            return None
        _put(target, texts, remote.url, signed)
    return _exchanged(new, entries, signed.serial)


def _put(target: Path, texts: Mapping[str, str], url: str, signed: SignedIndex) -> None:
    """Write what is not there, under a lock that is held."""
    record = json.dumps({"format": 1, "url": url, "serial": signed.serial}) + "\n"
    # The record first: a pull that was killed in between goes on, and never goes back.
    whole = {RECORD: record, **texts, index.NAME: signed.index}
    stale = [path for path in whole if not _reads(target, path, whole[path])]
    if stale:
        folder.put(target, whole, stale)


def _reads(target: Path, path: str, text: str) -> bool:
    found = index.contents(target, path)
    return found is not None and found[1] == text.encode()


def _opened(remote: SignedFolder, trusted: TrustedKeys) -> SignedIndex | None:
    """The signed index, read again where it was replaced while it was read: HTTP asks for its size before."""
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


def _last(target: Path, url: str) -> int:
    """The number of the index that was pulled last into a directory, 0 before the first.

    Raises PlanIndexError where the directory has plans of something else.
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


def _fetched(remote: RemoteFolder, one: IndexEntry) -> bytes:
    """The bytes that an entry pins."""
    data = remote.read(_file(one), index.LARGEST)
    if data is None:
        raise PlanRemoteError(f"{remote.url}/{_file(one)} is not there, {one.path}: push it again")
    if index.pinned(data) != one.sha256:
        raise PlanSignatureError(f"{remote.url}/{_file(one)} was altered: find out by whom, remove it, and push again")
    return data


def _file(one: IndexEntry) -> str:
    """A file never changes: it is named by its bytes."""
    return f"{one.sha256}.py"


def _exchanged(new: Iterable[IndexEntry], every: Iterable[IndexEntry], serial: int) -> Exchanged:
    return Exchanged(tuple(one.path for one in new), tuple(one.path for one in every), serial)


def _within(seconds: float, url: str, call: Callable[[], T]) -> T:
    """What a call returns or raises, PlanRemoteError where it takes longer: not every protocol has a deadline."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="kvplan-remote", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        if done.done():
            return done.result()
        told = f"{without_credentials(url)} has not answered within {seconds:g} s: ask again, or give it more time"
        raise PlanRemoteError(told) from None
