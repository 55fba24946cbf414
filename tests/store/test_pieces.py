"""Pieces go straight between objects and an engine's memory: of any size, by any mover, and none too late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.shares import later
from tests.store.engines import REVISION, empty, full, keys_of, load_into, save

from kvplan.plan.types import Runs
from kvplan.runtime.errors import AddressError, RegisterError, TransportError
from kvplan.runtime.memory.register import Pool, views
from kvplan.runtime.transport.base import Transport
from kvplan.runtime.transport.inmemory import Hub, InMemory
from kvplan.store import carry
from kvplan.store import header as heads
from kvplan.store import store as stores
from kvplan.store.engine import Loader, Saver
from kvplan.store.errors import DamagedObjectError, StoreFileError
from kvplan.store.layout import stored_layout
from kvplan.store.memory import HostMemory, PieceSpans
from kvplan.store.objects import InMemoryObjects, NewObject
from kvplan.store.store import Store

HEADS, KEYS = "toy-heads", keys_of(7)
GET, PUT = HostMemory.get, HostMemory.put


def transports() -> Callable[[str], Transport]:
    return partial(InMemory, Hub())


@pytest.mark.parametrize("make", [lambda: None, transports], ids=["host", "transports"])
@pytest.mark.parametrize("piece", [*later([40]), 96, 1000, 4096])
@pytest.mark.parametrize(
    ("model", "saves", "loads"),
    [
        (HEADS, "tp=4", "tp=2,order=nhd,block=32"),
        (HEADS, "engine=custom,order=LHBNC,block=4", "engine=sglang,block=1,tp=2"),
        ("toy-windows", "tp=2", "engine=sglang,block=8,order=hnd,tp=1"),
        ("toy-latent", "tp=2,dcp=2", "engine=sglang,block=64,tp=2"),
        ("toy-mamba2", "tp=4", "engine=sglang,block=16,tp=2"),
        ("toy-conv", "tp=4", "engine=sglang,block=4,tp=2"),
    ],
)
def test_pieces_of_any_size(
    monkeypatch: pytest.MonkeyPatch, model: str, saves: str, loads: str, piece: int, make: Callable[[], Any]
) -> None:
    """Pages are cut within loops and within spans, and what is cut fits together again."""
    monkeypatch.setattr(heads, "PIECE", piece)
    monkeypatch.setattr(carry, "PIECE", piece)
    store = Store()
    assert save(store, full(model, saves, 7), KEYS, make=make()) >= 7
    engine = empty(model, loads, (0, 112))
    assert load_into(store, engine, KEYS, make=make()) == 7
    assert not engine.wrong()
    assert [error for _, error in store.verify() if error] == []


@pytest.mark.parametrize("memory", ["device", "device+host", "host+device"])
@pytest.mark.parametrize(("saves", "loads"), [("tp=2", "tp=4,order=nhd"), ("block=32", "engine=sglang,block=1,tp=2")])
def test_caches_in_a_device_s_memory_and_in_both(saves: str, loads: str, memory: str) -> None:
    store, make, where = Store(), partial(InMemory, Hub(), pretends=True), f",memory.attention={memory}"
    save(store, full(HEADS, saves + where, 7), KEYS, make=make)
    engine = empty(HEADS, loads + where, (40, 112))
    assert load_into(store, engine, KEYS, make=make) == 7
    assert not engine.wrong()
    with pytest.raises(TransportError, match="make=Nixl"):
        load_into(store, engine, KEYS)


def test_as_many_bytes_are_counted_as_the_plan_moves() -> None:
    store, source, engine = Store(), full(HEADS, "tp=2", 7), empty(HEADS, "tp=2,order=nhd", (40, 112))
    size = Saver(store, source.made.plan, source.pools, revision=REVISION).save(KEYS, source.request.prefill).bytes
    assert size == sum(entry.size for entry in store.entries())
    loader = Loader(store, engine.made.plan, engine.pools, revision=REVISION)
    assert loader.load(KEYS, engine.request.decode, 40).bytes * 112 == size * 72


def test_objects_are_read_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    count = InMemoryObjects.threads
    together = threading.Barrier(count)

    def reads(*arguments: Any) -> None:
        together.wait(20)
        PUT(*arguments)

    store, keys = Store(), keys_of(count)
    save(store, full(HEADS, "tp=2", count), keys)
    monkeypatch.setattr(HostMemory, "put", reads)
    engine = empty(HEADS, "tp=4", (0, 16 * count))
    assert load_into(store, engine, keys) == count
    assert not engine.wrong()


def test_a_load_that_fails_leaves_no_read_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write into blocks that the engine has given to others."""
    store, engine, ended = Store(), empty(HEADS, "tp=4", (0, 112)), list[int]()
    save(store, full(HEADS, "tp=2", 7), KEYS)
    lock = threading.Lock()

    def reads(memory: HostMemory, some: Sequence[PieceSpans], piece: Any) -> None:
        with lock:
            number = len(ended)
            ended.append(number)
        if not number:
            raise DamagedObjectError("the first one")
        time.sleep(0.05)
        PUT(memory, some, piece)
        ended[number] = -1

    loader = Loader(store, engine.made.plan, engine.pools, revision=REVISION)
    with monkeypatch.context() as patched:
        patched.setattr(HostMemory, "put", reads)
        with pytest.raises(DamagedObjectError, match="the first one"):
            loader.load(KEYS, engine.request.decode)
    assert ended[1:] == [-1] * (len(ended) - 1)
    save(store, full(HEADS, "tp=2", 7), KEYS)
    loader.load(KEYS, engine.request.decode)
    assert not engine.wrong()


def test_a_write_that_fails_fails_the_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that were written before the failure keep their names."""
    put = InMemoryObjects.put

    def writes(objects: InMemoryObjects, some: Sequence[NewObject]) -> Any:
        if KEYS[5].hex() in some[0].header.name:
            raise StoreFileError("no room")
        return put(objects, some)

    store, source = Store(), full(HEADS, "tp=2", 7)
    monkeypatch.setattr(stores, "WRITTEN", 1)
    with monkeypatch.context() as patched:
        patched.setattr(InMemoryObjects, "put", writes)
        with pytest.raises(StoreFileError, match="no room"):
            save(store, source, KEYS)
    saved = {entry.name.split("/")[2][:64] for entry in store.entries()}
    assert {key.hex() for key in KEYS[:5]} == saved
    assert save(store, source, KEYS) == 2


def test_memory_that_may_not_be_written_is_refused() -> None:
    engine = empty(HEADS, "tp=1", (0, 112))
    pages = {plane: page.copy() for plane, page in engine.memory[0].planes.items()}
    for page in pages.values():
        page.flags.writeable = False
    with pytest.raises(RegisterError, match="read-only"):
        Loader(Store(), engine.made.plan, [views(engine.made.plan.decode, 0, pages)], revision=REVISION)


def test_memory_of_a_device_needs_transports() -> None:
    with pytest.raises(TransportError, match="make=Nixl"):
        HostMemory([on_device(pool) for pool in full(HEADS, "tp=2", 1).pools])


def on_device(pool: Pool) -> Pool:
    types = ("VRAM",) * len(pool.geometry.mem_types)
    return replace(pool, geometry=replace(pool.geometry, mem_types=types))


def test_a_span_outside_of_the_engine_s_memory_is_refused() -> None:
    """Numpy would write there, whatever table or plan says so."""
    engine = full(HEADS, "tp=1", 1)
    plan, zero = engine.made.plan, np.zeros(1, np.int64)
    (part,) = stored_layout(plan, "decode", REVISION).parts["attention"]
    (nest, *_) = carry.stored_nests(plan, carry.DECODE, engine.pools, part)
    assert list(nest.of_block(Runs(zero, zero, zero, zero, np.array([16]))))
    with pytest.raises(AddressError, match="the engine's memory"):
        list(nest.of_block(Runs(np.array([10**6]), zero, zero, zero, np.array([16]))))
