"""Killed at any step of a save: nothing wrong is ever loaded, and nothing that was complete is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.paths import ROOT
from tests.store.engines import empty, full, keys_of, load_into, save
from tests.store.killed import LENGTH, MODEL, STEPS, ended

from kvplan.store.store import INDEX, OBJECTS, Store

CALLS = [1, 2, 3]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(tmp_path: Path, step: str, call: int) -> None:
    assert ended(str(tmp_path), step, call) == -signal.SIGKILL
    keys, complete = keys_of(LENGTH), {name for name in named(tmp_path) if "attention" in name}
    with Store.open(tmp_path) as store:
        assert [error for _, error in store.verify() if error] == []
        assert len({entry.name for entry in store.entries()} - set(named(tmp_path))) == 0
        save(store, full(MODEL, "tp=4", LENGTH), keys)
        assert complete <= set(named(tmp_path))
        engine = empty(MODEL, "tp=1", (0, LENGTH * 16))
        assert load_into(store, engine, keys) == LENGTH
        assert not engine.wrong()
        assert store.collect(abandoned=0.0).unfinished <= LENGTH + 1
    assert not list(tmp_path.rglob("*.unfinished"))


def test_what_has_a_name_is_found_without_the_index(tmp_path: Path) -> None:
    keys = keys_of(LENGTH)
    with Store.open(tmp_path) as store:
        save(store, full(MODEL, "tp=2", LENGTH), keys)
    for path in tmp_path.glob(f"{INDEX}*"):
        path.unlink()
    with Store.open(tmp_path) as store:
        assert store.entries() == []
        engine = empty(MODEL, "tp=1", (0, LENGTH * 16))
        assert load_into(store, engine, keys) == LENGTH
        assert not engine.wrong()
        assert len(store.entries()) == LENGTH + 1


SEVERAL = """
import sys
from tests.store.engines import full
from tests.store.killed import *
store, engine = Store.open(sys.argv[1]), full(MODEL, SIDE, LENGTH)
for turn in range(8):
    save(store, engine, keys_of(LENGTH))
    store.collect(most_bytes=turn % 3 * 2000)
save(store, engine, keys_of(LENGTH))
"""


def test_several_processes_save_and_remove_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SEVERAL, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    with Store.open(tmp_path) as store:
        assert [error for _, error in store.verify() if error] == []
        # A process that waited too long for the index's lock has not recorded its removals there.
        store.take_stock()
        save(store, full(MODEL, "tp=4", LENGTH), keys_of(LENGTH))
        engine = empty(MODEL, "tp=1", (0, LENGTH * 16))
        assert load_into(store, engine, keys_of(LENGTH)) == LENGTH
        assert not engine.wrong()


def test_what_another_process_removes_before_it_is_in_the_index_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, engine = keys_of(LENGTH), empty(MODEL, "tp=1", (0, LENGTH * 16))
    with Store.open(tmp_path) as store, Store.open(tmp_path) as other:
        remove_first(store, other, monkeypatch)
        save(store, full(MODEL, "tp=4", LENGTH), keys)
        assert {entry.name for entry in store.entries()} == set(named(tmp_path))
        save(store, full(MODEL, "tp=4", LENGTH), keys)
        assert load_into(store, engine, keys) == LENGTH
        assert not engine.wrong()


def remove_first(store: Store, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When `store` is about to take something into its index for the first time, `other` removes all there is."""
    put = store._index.put

    def late(*what: Any) -> None:
        monkeypatch.undo()
        assert other.collect(most_bytes=0).removed
        put(*what)

    monkeypatch.setattr(store._index, "put", late)


def named(folder: Path) -> list[str]:
    """Objects by their files' names."""
    root = folder / OBJECTS
    return [p.relative_to(root).as_posix() for p in root.glob("*/*/*") if not p.name.endswith(".unfinished")]
