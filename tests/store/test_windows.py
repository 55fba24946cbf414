"""Windows of the memory in between: others are read and written while one is moved, and none is used too early."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.store.engines import REVISION, empty, full, keys_of, load_into, save

from kvplan.store.carry import LocalCarrier
from kvplan.store.engine import Loader
from kvplan.store.errors import DamagedObjectError, StoreFileError
from kvplan.store.layout import StoredLayout
from kvplan.store.store import Store, StoredBlock

HEADS, KEYS = "toy-heads", keys_of(7)
READ, WRITE = Store.read, Store.write


def filled() -> Store:
    store = Store()
    save(store, full(HEADS, "tp=2", 7), KEYS)
    return store


def test_the_next_window_is_read_while_one_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    move, store, engine = LocalCarrier.move, filled(), empty(HEADS, "tp=4", (0, 112))
    read, begun = [threading.Event() for _ in KEYS], list[bytes]()

    def reads(store: Store, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        READ(store, layout, blocks)
        for block in blocks:
            read[KEYS.index(block.key)].set()

    def moves(*arguments: Any) -> int:
        begun.append(b"")
        assert read[min(len(begun), len(KEYS) - 1)].wait(20)
        return move(*arguments)

    monkeypatch.setattr(Store, "read", reads)
    monkeypatch.setattr(LocalCarrier, "move", moves)
    assert load_into(store, engine, KEYS, blocks=2) == 7
    assert len(begun) == 7
    assert not engine.wrong()


def test_a_block_is_written_while_the_next_one_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one waited for the other nothing would ever end."""
    move, store = LocalCarrier.move, Store()
    begun = [threading.Event() for _ in KEYS]

    def moves(*arguments: Any) -> int:
        next(event for event in begun if not event.is_set()).set()
        return move(*arguments)

    def writes(store: Store, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        assert begun[min(KEYS.index(blocks[0].key) + 1, len(KEYS) - 1)].wait(20)
        WRITE(store, layout, blocks)

    monkeypatch.setattr(LocalCarrier, "move", moves)
    monkeypatch.setattr(Store, "write", writes)
    assert save(store, full(HEADS, "tp=2", 7), KEYS, blocks=2) == 7


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 16])
def test_memory_is_not_used_again_before_it_is_written(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    def writes(store: Store, layout: StoredLayout, some: Sequence[StoredBlock]) -> None:
        time.sleep(0.01)
        WRITE(store, layout, some)

    monkeypatch.setattr(Store, "write", writes)
    store, engine = Store(), empty(HEADS, "tp=4,order=nhd", (0, 112))
    assert save(store, full(HEADS, "tp=2", 7), KEYS, blocks=blocks) == 7
    assert load_into(store, engine, KEYS, blocks=blocks) == 7
    assert not engine.wrong()


def test_a_load_that_fails_leaves_no_read_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write into memory that the next load uses."""
    store, engine, running = filled(), empty(HEADS, "tp=4", (0, 112)), threading.Semaphore(0)
    ended: list[bytes] = []

    def reads(store: Store, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        if blocks[0].key == KEYS[0]:
            assert running.acquire(timeout=20)
            raise DamagedObjectError("the first one")
        running.release()
        time.sleep(0.05)
        READ(store, layout, blocks)
        ended.append(blocks[0].key)

    loader = Loader(store, engine.made.plan, engine.pools, revision=REVISION, blocks=4)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "read", reads)
        with pytest.raises(DamagedObjectError, match="the first one"):
            loader.load(KEYS, engine.request.decode)
    assert ended
    before = len(ended)
    loader.load(KEYS, engine.request.decode)
    assert len(ended) == before
    assert not engine.wrong()
    loader.close()


def test_a_write_that_fails_fails_the_save(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(store: Store, layout: StoredLayout, blocks: Sequence[StoredBlock]) -> None:
        if blocks[0].key == KEYS[5]:
            raise StoreFileError("no room")
        WRITE(store, layout, blocks)

    store, source = Store(), full(HEADS, "tp=2", 7)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "write", writes)
        with pytest.raises(StoreFileError, match="no room"):
            save(store, source, KEYS)
    saved = {entry.name.split("/")[2][:64] for entry in store.entries()}
    assert {key.hex() for key in KEYS[:5]} <= saved
    assert save(store, source, KEYS) == len(KEYS) - len(saved) >= 1
