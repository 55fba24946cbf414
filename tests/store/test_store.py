"""The contents of a store: prefixes, windows, states, damage, eviction."""

from __future__ import annotations

import errno
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.agents import has_nixl
from tests.store.engines import REVISION, Engine, empty, full, keys_of, load_into, save, tokens_of

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import load
from kvplan.runtime.errors import BadRequestError, DeadlineError, HandleError, LimitedError
from kvplan.runtime.transport.inmemory import CopyTransfer, Hub, InMemory
from kvplan.store import engine as engines
from kvplan.store import layout as layouts
from kvplan.store.engine import Loader, Saver
from kvplan.store.errors import (
    DamagedObjectError,
    ForeignObjectError,
    MissingObjectError,
    StoreError,
    StoreFileError,
    StoreIndexError,
    StoreKeyError,
    StoreSideError,
)
from kvplan.store.files import Files, NixlFiles, PlainFiles
from kvplan.store.header import ObjectHeader, encoded
from kvplan.store.keys import block_keys
from kvplan.store.layout import Wanted, covers, joined, stored_layout, wanted
from kvplan.store.objects import Folder
from kvplan.store.store import INDEX, OBJECTS, Store

MOVERS = [PlainFiles, pytest.param(NixlFiles, marks=pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed"))]
HEADS, KEYS = "toy-heads", keys_of(7)


def files(folder: Path, word: str = "") -> list[Path]:
    """The files of objects whose names have a word, in an order that does not change."""
    return sorted(path for path in (folder / OBJECTS).glob("*/*/*") if word in path.name)


def loader(store: Store, engine: Engine, **options: Any) -> Loader:
    return Loader(store, engine.made.plan, engine.pools, **{"revision": REVISION, **options})


@pytest.mark.parametrize("make", MOVERS)
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_files(tmp_path: Path, make: type[Files], layers: int) -> None:
    with Store.open(tmp_path, make()) as store:
        save(store, full(HEADS, "tp=4", 7), KEYS, layers=layers)
        assert len(files(tmp_path)) == 7 * (1 if not layers else -(-3 // layers))
        engine = empty(HEADS, "tp=2,order=nhd,block=32", (0, 112))
        assert load_into(store, engine, KEYS, layers=layers) == 7
        assert not engine.wrong()
        assert [error for _, error in store.verify() if error] == []


def test_a_prefix_that_is_there_and_no_more() -> None:
    store = Store()
    save(store, full(HEADS, "tp=2", 5), KEYS[:5])
    engine = empty(HEADS, "tp=1", (0, 80))
    other = (*KEYS[:2], *keys_of(7, seed=1)[2:])
    with_loader = loader(store, engine)
    assert [with_loader.match(keys) for keys in (KEYS, KEYS[:3], other, other[2:], ())] == [5, 3, 2, 0, 0]
    assert [with_loader.match(KEYS, first) for first in (40, 79, 80, 200)] == [5, 5, 0, 0]
    with pytest.raises(MissingObjectError):
        with_loader.load(other[:5], engine.request.decode)


def test_what_is_there_is_not_saved_again() -> None:
    store = Store()
    assert save(store, full(HEADS, "tp=2", 5), KEYS[:5]) == 5
    assert save(store, full(HEADS, "tp=4", 7), KEYS) == 2
    assert save(store, full(HEADS, "tp=4", 7), KEYS) == 0


def test_behind_a_prefix_that_the_engine_has() -> None:
    store = Store()
    save(store, full(HEADS, "tp=2", 7), KEYS)
    engine = empty(HEADS, "tp=4", (40, 112))
    assert load_into(store, engine, KEYS) == 7
    assert not engine.wrong()


def test_a_state_is_there_where_it_was_saved() -> None:
    store = Store()
    for count in (3, 6):
        save(store, full("toy-mamba2", "tp=2", count), KEYS[:count])
    engine = empty("toy-mamba2", "tp=4", (0, 96))
    with_loader = loader(store, engine)
    assert [with_loader.match(KEYS[:count]) for count in range(8)] == [0, 0, 0, 3, 3, 3, 6, 6]
    assert load_into(store, engine, KEYS) == 6
    assert not engine.wrong()


def test_a_state_that_stands_elsewhere_is_refused() -> None:
    engine = full("toy-mamba2", "tp=2", 3)
    with pytest.raises(BadRequestError, match="stands after 48 tokens, the request ends at 32"):
        save(Store(), engine, KEYS[:2])


def test_a_prefix_is_not_looked_at_once_for_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing state is looked up at every block, without visiting the blocks before it again."""
    looked: list[int] = []

    def counted(*arguments: Any) -> Wanted:
        found = wanted(*arguments)
        looked.append(sum(map(len, found.values())))
        return found

    store, engine, keys = Store(), empty("toy-mamba2", "tp=4", (0, 96)), keys_of(40)
    save(store, full("toy-mamba2", "tp=2", 40), keys)
    monkeypatch.setattr(engines, "wanted", counted)
    assert loader(store, engine).match(keys[:39]) == 0
    assert looked == [1] * 39


def test_a_window_is_there_where_it_was_saved() -> None:
    """A window has the last tokens before the end of what was saved, and is found for ends that need no others."""
    store = Store()
    for count in (4, 7):
        save(store, full("toy-windows", "tp=2", count), KEYS[:count])
    engine = empty("toy-windows", "tp=4", (0, 112))
    found = [loader(store, engine).match(KEYS[:count]) for count in range(8)]
    assert found[4] == 4
    assert found[7] == 7
    assert found == sorted(found)
    assert load_into(store, engine, KEYS) == 7
    assert not engine.wrong()


def test_who_saves_more_meanwhile_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that ends further on needs less of a block."""
    store, usual = Store(), Saver._missing

    def meanwhile(saver: Saver, *asked: Any) -> Wanted:
        missing = usual(saver, *asked)
        monkeypatch.undo()
        save(store, full("toy-windows", "tp=2", 4), KEYS[:4])
        return missing

    monkeypatch.setattr(Saver, "_missing", meanwhile)
    save(store, full("toy-windows", "tp=1", 5), KEYS[:5])
    engine = empty("toy-windows", "tp=4", (0, 64))
    assert load_into(store, engine, KEYS[:4]) == 4
    assert not engine.wrong()
    assert loader(store, empty("toy-windows", "tp=4", (0, 80))).match(KEYS[:5]) == 5


def test_revisions_and_options_are_not_taken_for_each_other() -> None:
    store = Store()
    save(store, full(HEADS, "tp=2", 7), KEYS, revision="one")
    engine = empty(HEADS, "tp=4", (0, 112))
    assert loader(store, engine, revision="other").match(KEYS) == 0
    assert loader(store, engine, revision="one").match(KEYS) == 7
    assert loader(store, empty("toy-latent", "tp=1", (0, 112)), revision="one").match(KEYS) == 0


def test_models_of_one_shape_are_not_taken_for_each_other() -> None:
    """They may have one tokenizer, too, and so the same keys."""
    one, other = (compile_pair(load(), model, "tp=1", "engine=store").plan for model in ("deepseek-v3", "deepseek-r1"))
    assert (one.model_digest, one.decode.digest) == (other.model_digest, other.decode.digest)
    assert stored_layout(one, "decode", REVISION).space != stored_layout(other, "decode", REVISION).space


def test_weights_that_are_not_named_are_refused() -> None:
    """Two checkpoints of a model must not share keys by chance."""
    with pytest.raises(StoreKeyError, match="say which weights"):
        loader(Store(), empty(HEADS, "tp=4", (0, 112)), revision="")


@pytest.mark.parametrize(
    ("model", "side", "why"),
    [
        ("falcon-mamba-7b", "engine=store", "states alone have no blocks of tokens"),
        ("whisper-large-v3", "engine=store", "belongs to an encoder"),
        ("qwen3-0.6b", "engine=store,tp=2", "a stored cache is whole"),
        ("qwen3-0.6b", "engine=store,block=0", "holds nothing"),
    ],
)
@pytest.mark.parametrize("role", ["save", "load"])
def test_sides_that_no_store_has(model: str, side: str, why: str, role: str) -> None:
    pair = ("tp=1", side) if role == "save" else (side, "tp=1")
    with pytest.raises(Refused, match=why):
        compile_pair(load(), model, *pair)


def spoil(path: Path, how: str) -> None:
    if how == "pipe":
        path.unlink()
        os.mkfifo(path)
        return
    data = bytearray(path.read_bytes())
    if how == "page":
        data[-3] ^= 1
    elif how == "head":
        data[70] ^= 1
    elif how == "cut":
        del data[-1:]
    elif how == "long":
        data += b"x"
    elif how == "empty":
        data = bytearray()
    else:
        data[:5] = b"other"
    path.write_bytes(data)


@pytest.mark.parametrize("make", MOVERS)
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("page", DamagedObjectError),
        ("head", DamagedObjectError),
        ("cut", DamagedObjectError),
        ("long", DamagedObjectError),
        ("empty", DamagedObjectError),
        ("foreign", ForeignObjectError),
        ("pipe", ForeignObjectError),
    ],
)
def test_what_is_damaged_is_refused_once_and_can_be_saved_again(
    tmp_path: Path, how: str, error: type[StoreError], make: type[Files]
) -> None:
    with Store.open(tmp_path, make()) as store:
        source = full(HEADS, "tp=2", 7)
        save(store, source, KEYS)
        bad = files(tmp_path, KEYS[3].hex())[0]
        spoil(bad, how)
        assert [(name, type(wrong)) for name, wrong in store.verify() if wrong] == [
            (bad.relative_to(tmp_path / OBJECTS).as_posix(), error)
        ]
        engine = empty(HEADS, "tp=4", (0, 112))
        with_loader = loader(store, engine)
        with pytest.raises(error):
            with_loader.load(KEYS, engine.request.decode)
        assert with_loader.match(KEYS) == 3
        assert save(store, source, KEYS) == 1
        assert load_into(store, engine, KEYS) == 7
        assert not engine.wrong()


def test_a_file_under_another_name_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 7), KEYS)
        one, other = files(tmp_path, KEYS[1].hex())[0], files(tmp_path, KEYS[2].hex())[0]
        one.write_bytes(other.read_bytes())
        engine = empty(HEADS, "tp=4", (0, 112))
        with pytest.raises(ForeignObjectError, match="was renamed or copied"):
            loader(store, engine).load(KEYS, engine.request.decode)


def test_what_another_release_wrote_is_left_to_it(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 7), KEYS)
        other = files(tmp_path, KEYS[1].hex())[0]
        spoil(other, "foreign")
        os.utime(other, (1, 1))
    for path in tmp_path.glob(f"{INDEX}*"):
        path.unlink()
    with Store.open(tmp_path) as store:
        assert store.collect(abandoned=0.0).kept == 6
        assert other in files(tmp_path)


def test_releases_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = full(HEADS, "tp=1", 1).made.plan
    space = stored_layout(made, "decode", REVISION).space
    monkeypatch.setattr(layouts, "VERSION", "kvplan object 3")
    assert stored_layout(made, "decode", REVISION).space != space


def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 7), KEYS)
        files(tmp_path, KEYS[2].hex())[0].unlink()
        engine = empty(HEADS, "tp=4", (0, 112))
        with_loader = loader(store, engine)
        assert with_loader.match(KEYS) == 7
        with pytest.raises(MissingObjectError):
            with_loader.load(KEYS, engine.request.decode)
        assert with_loader.match(KEYS) == 2


def test_blocks_hold_nothing_of_other_requests(tmp_path: Path) -> None:
    """A window's first block is half full: the other half is zero, whatever the memory held before."""
    with Store.open(tmp_path) as store:
        engine = full("toy-windows", "tp=1", 7)
        save(store, engine, KEYS)
        halves = [entry for entry in store.entries() if entry.ranges and entry.ranges[0][0] % 16]
        assert halves
        for entry in halves:
            body = np.frombuffer((tmp_path / OBJECTS / entry.name).read_bytes(), np.uint8)[4096:]
            assert (body == 0).mean() >= (entry.ranges[0][0] % 16) / 16


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 4), KEYS[:4])
        time.sleep(0.01)
        save(store, full(HEADS, "tp=2", 4, seed=5), keys_of(4, seed=1))
        engine = empty(HEADS, "tp=4", (0, 64))
        load_into(store, engine, KEYS[:4])
        size = store.entries()[0].size
        swept = store.collect(most_bytes=5 * size)
        assert (swept.removed, swept.kept, swept.kept_bytes) == (3, 5, 5 * size)
        with_loader = loader(store, engine)
        # Collecting removes a request's last blocks first, so that the rest is a prefix.
        assert (with_loader.match(KEYS[:4]), with_loader.match(keys_of(4, seed=1))) == (4, 1)
        assert store.collect(age=0.0).kept == 0
        assert files(tmp_path) == []


def test_who_is_killed_while_it_removes_leaves_no_name_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Folder, name: str) -> None:
        usual(folder, name)
        raise KeyboardInterrupt

    usual, source = Folder.remove, full(HEADS, "tp=2", 4)
    with Store.open(tmp_path) as store:
        save(store, source, KEYS[:4])
        monkeypatch.setattr(Folder, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            store.collect(age=0.0)
        assert len(files(tmp_path)) == 3
        assert save(store, source, KEYS[:4]) == 1
        assert load_into(store, empty(HEADS, "tp=4", (0, 64)), KEYS[:4]) == 4


@pytest.mark.parametrize("make", MOVERS)
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: type[Files]) -> None:
    def full_disk(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Store.open(tmp_path, make()) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS[:1])
        before = files(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev" if make is PlainFiles else "posix_fallocate", full_disk)
            with pytest.raises(StoreFileError, match="No space"):
                save(store, full(HEADS, "tp=2", 3), KEYS[:3])
            assert load_into(store, empty(HEADS, "tp=4", (0, 16)), KEYS[:1]) == 1
        assert (files(tmp_path), len(store.entries())) == (before, 1)
        assert save(store, full(HEADS, "tp=2", 3), KEYS[:3]) == 2


def failing_on(call: Any, path: Path) -> Any:
    """A system call on a descriptor that fails for one file, whatever it is called later."""
    file = path.stat().st_ino

    def patched(fd: int, *more: Any) -> Any:
        if os.fstat(fd).st_ino == file:
            raise OSError(errno.EIO, "Input/output error")
        return call(fd, *more)

    return patched


@pytest.mark.parametrize("call", ["pread", "preadv"])
def test_a_file_that_a_disk_cannot_read_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    source, engine = full(HEADS, "tp=2", 3), empty(HEADS, "tp=4", (0, 48))
    with Store.open(tmp_path) as store:
        save(store, source, KEYS[:3])
        bad = files(tmp_path, KEYS[1].hex())[0]
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing_on(getattr(os, call), bad))
            assert [type(error) for _, error in store.verify() if error] == [DamagedObjectError]
            with pytest.raises(DamagedObjectError, match="look at the disk"):
                loader(store, engine).load(KEYS[:3], engine.request.decode)
        assert loader(store, engine).match(KEYS[:3]) == 1
        assert save(store, source, KEYS[:3]) == 1
        assert load_into(store, engine, KEYS[:3]) == 3
        assert not engine.wrong()


def test_a_file_that_cannot_be_opened_now_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Any, flags: int, *more: Any) -> int:
        if not flags & os.O_CREAT:
            raise OSError(errno.EMFILE, "Too many open files")
        return usual(path, flags, *more)

    usual, engine = os.open, empty(HEADS, "tp=4", (0, 48))
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 3), KEYS[:3])
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refused)
            with pytest.raises(StoreFileError, match="Too many open files"):
                loader(store, engine).load(KEYS[:3], engine.request.decode)
            assert [type(error) for _, error in store.verify()] == [StoreFileError] * 3
            assert loader(store, engine).match(KEYS[:3]) == 0
        assert load_into(store, engine, KEYS[:3]) == 3
        assert not engine.wrong()


def test_unlike_numbers_of_layers_are_beside_each_other(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        for layers in (2, 1):
            assert save(store, full(HEADS, "tp=2", 3), KEYS[:3], layers=layers) == 3
        for layers in (2, 1):
            engine = empty(HEADS, "tp=4", (0, 48))
            assert load_into(store, engine, KEYS[:3], layers=layers) == 3
            assert not engine.wrong()


def test_after_a_failure_memory_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Posted transfers may still arrive: a save that continued would store bytes other than the engine's."""
    engine, store = full(HEADS, "tp=2", 3), Store()
    make = partial(InMemory, Hub())
    saver = Saver(store, engine.made.plan, engine.pools, revision=REVISION, make=make, seconds=-1.0)
    with monkeypatch.context() as patched:
        patched.setattr(CopyTransfer, "poll", lambda _: False)
        # Three threads save: the first one to move meets the deadline, the others are refused with its text.
        with pytest.raises((DeadlineError, HandleError), match="was not moved within"):
            saver.save(KEYS[:3], engine.request.prefill)
    with pytest.raises(HandleError, match=r"was not moved within.*make a new one"):
        saver.save(KEYS[:3], engine.request.prefill)
    assert store.entries() == []


def test_what_cannot_be_a_key() -> None:
    engine = full(HEADS, "tp=2", 1)
    with pytest.raises(StoreKeyError, match="32 bytes"):
        save(Store(), engine, [b"short"])
    with pytest.raises(StoreKeyError, match="divisor"):
        block_keys(tokens_of(32), 16, hashed=5)
    for tokens in ([1.5] * 16, ["1"] * 16):
        with pytest.raises(StoreKeyError, match="whole number"):
            block_keys(tokens, 16)  # type: ignore[arg-type]
    with pytest.raises(StoreKeyError, match="no UTF-8"):
        block_keys(tokens_of(16), 16, extra="\ud800")


def test_a_side_that_cannot_be_stored() -> None:
    with pytest.raises(StoreSideError, match="2 workers"):
        stored_layout(full(HEADS, "tp=2", 1).made.plan, "prefill", REVISION)
    made = full(HEADS, "tp=1", 1).made.plan
    assert stored_layout(made, "decode", REVISION).tokens == 16


def test_an_index_that_is_none(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreIndexError, match="remove it"):
        Store.open(tmp_path)


def test_ranges() -> None:
    assert joined([(8, 16), (0, 8), (20, 24)]) == ((0, 16), (20, 24))
    assert covers([(0, 16)], [(4, 8), (8, 16)])
    assert not covers([(0, 16)], [(4, 17)])
    assert covers([(0, 4)], [])


@pytest.mark.parametrize("make", MOVERS)
def test_more_objects_than_files_may_be_open(tmp_path: Path, make: type[Files]) -> None:
    """One object a layer: 3 of 80 blocks."""
    keys, usual = keys_of(80), resource.getrlimit(resource.RLIMIT_NOFILE)
    engines = full(HEADS, "tp=2", 80), empty(HEADS, "tp=1", (0, 80 * 16))
    with Store.open(tmp_path, make()) as store:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, usual[1]))
        try:
            assert save(store, engines[0], keys, layers=1) == 80
            assert load_into(store, engines[1], keys, layers=1) == 80
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert not engines[1].wrong()


@pytest.mark.parametrize("make", MOVERS)
def test_threads_share_a_store(tmp_path: Path, make: type[Files]) -> None:
    engines = [full(HEADS, "tp=2", 7, seed=seed) for seed in range(3)]
    with Store.open(tmp_path, make()) as store, ThreadPoolExecutor(3) as threads:

        def saves(number: int) -> list[int]:
            return [save(store, engines[number], keys_of(7, seed=100 * number + turn)) for turn in range(8)]

        assert list(threads.map(saves, range(3))) == [[7] * 8] * 3
        assert [error for _, error in store.verify() if error] == []


def test_closed_pools_are_needed_no_more() -> None:
    engine = full(HEADS, "tp=2", 1)
    saver = Saver(Store(), engine.made.plan, engine.pools, revision=REVISION)
    saver.close()
    saver.close()


@pytest.mark.parametrize(("pages", "sums"), [((-4096, 8192), bytes(4)), ((4096, 0), bytes(4)), ((4096,), bytes(8))])
def test_pages_or_sums_that_cannot_be_are_foreign(tmp_path: Path, pages: tuple[int, ...], sums: bytes) -> None:
    """An object of a foreign writer with a right checksum is foreign; the others are verified all the same."""
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 2), KEYS[:2])
        crafted = ObjectHeader("s" * 32, "a" * 64, "p", 16, ((0, 16),), pages, sums)
        path = tmp_path / OBJECTS / crafted.name
        path.parent.mkdir(parents=True)
        path.write_bytes(encoded(crafted) + bytes(4096))
        found = dict(store.verify())
    assert len(found) == 3
    assert isinstance(found[crafted.name], ForeignObjectError)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"layers": -1}, LimitedError),
        ({"layers": "x"}, LimitedError),
        ({"revision": 5}, StoreKeyError),
        ({"revision": "a\nb"}, StoreKeyError),
        ({"revision": "\ud800"}, StoreKeyError),
    ],
)
def test_odd_options_of_a_store_are_typed_errors(options: dict[str, Any], error: type[Exception]) -> None:
    engine = empty(HEADS, "tp=4", (0, 112))
    with pytest.raises(error):
        Loader(Store(), engine.made.plan, engine.pools, **{"revision": REVISION, **options})


@pytest.mark.parametrize("first", [-1, 1.5, None, "x"])
def test_what_counts_no_tokens_matches_nothing(first: Any) -> None:
    with pytest.raises(BadRequestError, match="first is"):
        loader(Store(), empty(HEADS, "tp=4", (0, 112))).match(KEYS, first)


def test_a_closed_end_of_a_store_says_so() -> None:
    store, engine = Store(), empty(HEADS, "tp=4", (0, 112))
    save(store, full(HEADS, "tp=2", 7), KEYS)
    ended = loader(store, engine)
    ended.close()
    with pytest.raises(HandleError, match="is closed"):
        ended.load(KEYS, engine.request.decode)


def test_one_object_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=4", 7), KEYS)
        stuck = files(tmp_path)[3]
        stuck.unlink()
        (stuck / "folder").mkdir(parents=True)
        with pytest.raises(StoreFileError, match=stuck.name):
            store.remove([entry.name for entry in store.entries()])
        assert files(tmp_path) == [stuck]
        assert store.entries() == []
        (stuck.parent / "half.unfinished").write_text("")
        (stuck.parent / "folder.unfinished").mkdir()
        assert store.collect(abandoned=0.0).unfinished == 1


def test_an_object_that_is_there_is_not_missing_whatever_fails(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        save(store, full(HEADS, "tp=2", 1), KEYS[:1])
    name = files(tmp_path)[0].relative_to(tmp_path / OBJECTS).as_posix()

    def gone(_: ObjectHeader) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    with pytest.raises(StoreFileError):
        Folder(tmp_path / OBJECTS).read(name, gone)  # type: ignore[arg-type]
