"""Stores at a URL: what is saved there by one mesh any other one loads, and what is wrong is refused by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.helpers.agents import has_nixl
from tests.store.engines import empty, full, keys_of, load_into, save
from tests.store.killed import LENGTH, MODEL, REMOTE_STEPS, ended
from tests.store.s3 import BUCKET, SERVERS, s3_server

from kvplan.remote.folder import RemoteFolder
from kvplan.runtime.errors import TransportError
from kvplan.store.bucket import NixlBucket
from kvplan.store.errors import DamagedObjectError, ForeignObjectError, MissingObjectError, StoreFileError
from kvplan.store.header import encoded, read_header
from kvplan.store.objects import REFUSED
from kvplan.store.pages import checksum
from kvplan.store.store import Store

HEADS, KEYS = "toy-heads", keys_of(7)
PLACES = ("memory", "file", *SERVERS)


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder at a URL."""
    folder = tmp_path_factory.mktemp("place")
    if request.param not in SERVERS:
        yield {"memory": "memory://store", "file": folder.as_uri()}[request.param]
        return
    with pytest.MonkeyPatch.context() as patch, s3_server(request.param, folder, patch):
        yield f"s3://{BUCKET}"


on_servers = pytest.mark.parametrize("place", SERVERS, indirect=True)


@pytest.fixture
def url(place: str, tmp_path: Path) -> str:
    """A folder for each test."""
    return f"{place}/{tmp_path.name}"


def names(url: str) -> list[str]:
    return list(RemoteFolder(url).names())


@pytest.mark.parametrize("layers", [0, 1])
def test_what_one_mesh_saved_another_one_loads(url: str, layers: int) -> None:
    with Store.at(url) as store:
        assert save(store, full(HEADS, "tp=4", 7), KEYS, layers=layers) == 7
        assert len(names(url)) == 7 * (3 if layers else 1)
        engine = empty(HEADS, "tp=2,order=nhd,block=32", (0, 112))
        assert load_into(store, engine, KEYS, layers=layers) == 7
        assert not engine.wrong()
        assert [error for _, error in store.verify() if error] == []


def test_an_index_that_is_empty_is_filled_by_looking(url: str, tmp_path: Path) -> None:
    source = full(HEADS, "tp=4", 7)
    with Store.at(url, tmp_path / "index") as store:
        save(store, source, KEYS)
        known = [(entry.name, entry.size, entry.ranges) for entry in store.entries()]
    with Store.at(url, tmp_path / "index") as store:
        assert len(store.entries()) == 7
    with Store.at(url) as store:
        assert store.entries() == []
        assert save(store, source, KEYS) == 0
    with Store.at(url) as store:
        store.take_stock()
        assert sorted((entry.name, entry.size, entry.ranges) for entry in store.entries()) == sorted(known)
        engine = empty(HEADS, "tp=2", (0, 112))
        assert load_into(store, engine, KEYS) == 7
        assert not engine.wrong()


def cut_off(data: bytes) -> bytes:
    return data[:-1]


def longer(data: bytes) -> bytes:
    return data + b"x"


def altered(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def headless(data: bytes) -> bytes:
    return data[:30]


def foreign(data: bytes) -> bytes:
    return b"something else" + data


@pytest.mark.parametrize("spoil", [cut_off, longer, altered, headless, foreign])
def test_what_is_wrong_is_refused_and_saved_anew(url: str, spoil: Callable[[bytes], bytes]) -> None:
    error = ForeignObjectError if spoil is foreign else DamagedObjectError
    folder, source = RemoteFolder(url), full(HEADS, "tp=2", 7)
    with Store.at(url) as store:
        save(store, source, KEYS)
        bad = next(name for name in names(url) if KEYS[3].hex() in name)
        folder.write(bad, spoil(folder.read(bad, 1 << 20) or b""))
        assert [(name, type(wrong)) for name, wrong in store.verify() if wrong] == [(bad, error)]
        with pytest.raises(error, match=bad):
            load_into(store, empty(HEADS, "tp=4", (0, 112)), KEYS)
        assert f"{bad}{REFUSED}" in names(url)
        assert save(store, source, KEYS) == 1
        engine = empty(HEADS, "tp=4", (0, 112))
        assert load_into(store, engine, KEYS) == 7
        assert not engine.wrong()
        assert store.collect(abandoned=-60.0).unfinished == 1
        assert len(names(url)) == 7


def test_an_object_under_another_name_is_refused(url: str) -> None:
    folder = RemoteFolder(url)
    with Store.at(url) as store:
        save(store, full(HEADS, "tp=2", 2), KEYS[:2])
        one, other = names(url)
        folder.write(one, folder.read(other, 1 << 20) or b"")
        with pytest.raises(ForeignObjectError, match="was renamed or copied"):
            load_into(store, empty(HEADS, "tp=4", (0, 32)), KEYS[:2])


def test_an_object_that_is_replaced_while_it_is_read_is_not_taken_for_damaged(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head is read, and then its pages are another one's."""
    span = RemoteFolder.span

    def replaced(folder: RemoteFolder, name: str, start: int, size: int) -> bytes | None:
        if start:
            monkeypatch.setattr(RemoteFolder, "span", span)
            folder.write(name, another(folder.read(name, 1 << 20) or b"", name))
        return span(folder, name, start, size)

    with Store.at(url) as store:
        save(store, full(HEADS, "tp=2", 2), KEYS[:2])
        before = names(url)
        monkeypatch.setattr(RemoteFolder, "span", replaced)
        with pytest.raises(MissingObjectError, match="has been replaced"):
            load_into(store, empty(HEADS, "tp=4", (0, 32)), KEYS[:2])
        assert names(url) == before
        assert load_into(store, empty(HEADS, "tp=4", (0, 32)), KEYS[:2]) == 2


def another(data: bytes, name: str) -> bytes:
    """An object of the same name, and of other bytes."""
    header, start = read_header(lambda size: data[:size], len(data), name)
    body = np.frombuffer(data[start:], np.uint8) ^ np.uint8(1)
    return encoded(header.summed([checksum(body[low:high]) for low, high in header.pieces])) + body.tobytes()


def test_several_save_and_remove_the_same(url: str) -> None:
    engines = [full(HEADS, "tp=2", 7, seed=seed) for seed in range(3)]

    def saves(number: int) -> None:
        with Store.at(url) as store:
            for turn in range(3):
                save(store, engines[number], KEYS)
                save(store, engines[number], keys_of(7, seed=100 * number + turn + 1))
                store.remove([entry.name for entry in store.entries()][:2])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(saves, range(3)))
    with Store.at(url) as store:
        assert [error for _, error in store.verify() if error] == []
        save(store, full(HEADS, "tp=4", 7), KEYS)
        engine = empty(HEADS, "tp=1", (0, 112))
        assert load_into(store, engine, KEYS) == 7


def test_what_was_not_used_for_longest_goes_first(url: str) -> None:
    with Store.at(url) as store:
        save(store, full(HEADS, "tp=2", 4), KEYS[:4])
        size = store.entries()[0].size
        collected = store.collect(most_bytes=2 * size)
        assert (collected.removed, collected.kept) == (2, 2)
        assert len(names(url)) == 2
        assert store.collect(age=0.0).kept == 0
        assert names(url) == []


@pytest.mark.parametrize("step", REMOTE_STEPS)
def test_killed_at_a_step(place: str, url: str, step: str) -> None:
    if place.startswith("memory"):
        pytest.skip("it is this process's own")
    assert ended(url, step, 2) == -signal.SIGKILL
    complete, keys = set(names(url)), keys_of(LENGTH)
    with Store.at(url) as store:
        assert [error for _, error in store.verify() if error] == []
        save(store, full(MODEL, "tp=4", LENGTH), keys)
        assert complete <= set(names(url))
        engine = empty(MODEL, "tp=1", (0, LENGTH * 16))
        assert load_into(store, engine, keys) == LENGTH
        assert not engine.wrong()


@on_servers
def test_parts_that_nobody_put_together_are_no_object(url: str) -> None:
    import s3fs

    system = s3fs.S3FileSystem(skip_instance_cache=True)
    with Store.at(url) as store:
        save(store, full(HEADS, "tp=2", 1), KEYS[:1])
        (name,) = names(url)
        body = RemoteFolder(url).read(name, 1 << 20) or b""
        store.remove([name])
        bucket, _, key = f"{url}/{name}".removeprefix("s3://").partition("/")
        begun = system.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
        system.call_s3("upload_part", Bucket=bucket, Key=key, PartNumber=1, UploadId=begun["UploadId"], Body=body)
        assert names(url) == []
        assert save(store, full(HEADS, "tp=2", 1), KEYS[:1]) == 1


@on_servers
@pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed")
def test_by_nixl(place: str, url: str) -> None:
    address = os.environ["AWS_ENDPOINT_OVERRIDE"]
    bucket = NixlBucket(BUCKET, endpoint_override=address, scheme="http", use_virtual_addressing="false")
    with Store.at(url, bucket=bucket) as store:
        assert save(store, full("toy-mamba2", "tp=4", 7), KEYS, layers=2) == 8
        engine = empty("toy-mamba2", "tp=2,order=nhd", (0, 112))
        assert load_into(store, engine, KEYS, layers=2) == 7
        assert not engine.wrong()
    with Store.at(url) as store:
        assert [error for _, error in store.verify() if error] == []
        engine = empty("toy-mamba2", "tp=1", (0, 112))
        assert load_into(store, engine, KEYS, layers=2) == 7
        assert not engine.wrong()


@pytest.mark.parametrize("place", ["moto"], indirect=True)
@pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed")
def test_after_a_failure_of_nixl_nothing_is_moved(place: str, url: str) -> None:
    address = os.environ["AWS_ENDPOINT_OVERRIDE"]
    bucket = NixlBucket("nowhere", endpoint_override=address, scheme="http", use_virtual_addressing="false")
    bucket.bucket = BUCKET
    with Store.at(url, bucket=bucket) as store:
        for match in ("NIXL", "make a new NixlBucket"):
            with pytest.raises(TransportError, match=match):
                save(store, full(HEADS, "tp=4", 1), KEYS[:1])
        assert store.entries() == []
        assert names(url) == []


@on_servers
@pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed")
def test_a_bucket_of_another_place_is_refused(place: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreFileError, match="is not in bucket elsewhere"):
        Store.at(url, bucket=NixlBucket("elsewhere"))
    monkeypatch.setattr(NixlBucket, "write", lambda *_: None)
    with Store.at(url, bucket=NixlBucket(BUCKET)) as store:
        with pytest.raises(StoreFileError, match="give NixlBucket the endpoint"):
            save(store, full(HEADS, "tp=4", 1), KEYS[:1])
        assert store.entries() == []


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(StoreFileError, match=r"pip install 'fsspec\[http\]'"):
        Store.at("nothing://bucket/store")
    (tmp_path / "file").write_text("")
    with Store.at((tmp_path / "file").as_uri()) as store, pytest.raises(StoreFileError, match="cannot be written"):
        save(store, full(HEADS, "tp=2", 1), KEYS[:1])
    with Store.at("http://127.0.0.1:9/store") as store, pytest.raises(StoreFileError, match="cannot be listed"):
        store.take_stock()
