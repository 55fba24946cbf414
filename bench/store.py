"""Saving and loading by way of files, against plain writes and reads of the same bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvplan.bench.report import Row, skipped, within
from kvplan.bench.sample import interleave
from kvplan.bench.stage import library, plan_of

if TYPE_CHECKING:
    from kvplan.plan.block_tables import Tables
    from kvplan.plan.types import Side
    from kvplan.runtime.memory.register import Pool
    from kvplan.runtime.transport.files import Files

AREA = "stored caches"
MODEL, BLOCK, BLOCKS = "qwen3-0.6b", 256, 8
TOKENS = BLOCK * BLOCKS
CASES = (
    ("heads first, as they are stored", "tp=2"),
    ("tokens first", "tp=2,order=nhd"),
)
Bytes = npt.NDArray[np.uint8]


def measure(pairs: int) -> list[Row]:
    """Files that are read are in the system's memory: what a disk does is its own. Nothing is asked for."""
    from kvplan.runtime.errors import NixlMissingError
    from kvplan.runtime.transport.files import NixlFiles, PlainFiles

    rows = [row for name, side in CASES for row in _case(f"{name}, system calls", side, PlainFiles(), pairs)]
    try:
        files = NixlFiles()
    except NixlMissingError as error:
        return [*rows, skipped(AREA, str(error))]
    return [*rows, *_case(f"{CASES[0][0]}, NIXL POSIX", CASES[0][1], files, pairs)]


def _case(name: str, side: str, files: Files, pairs: int) -> list[Row]:
    from kvplan.runtime.store.engine import Loader, Saver
    from kvplan.runtime.store.keys import block_keys
    from kvplan.runtime.store.store import Store

    saves, loads = plan_of(library(), MODEL, side, "engine=store"), plan_of(library(), MODEL, "engine=store", side)
    keys, tables = block_keys(range(TOKENS), BLOCK), _tables(saves.prefill)
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "store", files) as store:
        saver = Saver(store, saves, _pools(saves.prefill), revision="bench")
        loader = Loader(store, loads, _pools(loads.decode), revision="bench")
        plain = np.ones((BLOCKS, saver.save(keys, tables).bytes // BLOCKS), np.uint8)
        paths = [Path(folder) / str(number) for number in range(BLOCKS)]

        def save() -> None:
            store.remove([entry.name for entry in store.entries()])
            saver.save(keys, tables)

        saved = interleave(save, lambda: _write(paths, plain), pairs)
        loaded = interleave(lambda: loader.load(keys, tables), lambda: _read(paths, plain), pairs)
        saver.close()
        loader.close()
    return [within(AREA, f"save, {name}", saved), within(AREA, f"load, {name}", loaded)]


def _write(paths: Sequence[Path], plain: Bytes) -> None:
    """New files, synced as those of a store are."""
    for path, page in zip(paths, plain, strict=True):
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            file.write(page.data)
            os.fsync(file.fileno())


def _read(paths: Sequence[Path], plain: Bytes) -> None:
    for path, page in zip(paths, plain, strict=True):
        with path.open("rb", buffering=0) as file:
            file.readinto(page.data)


def _pools(side: Side) -> list[Pool]:
    """Memory for all tokens on every worker."""
    from kvplan.plan import planes as names
    from kvplan.runtime.memory.register import views

    count = {group.name: -(-TOKENS // group.kernel) for group in side.groups}
    return [
        views(side, number, {p.name: np.ones((count[p.group], p.stride), np.uint8) for p in names.planes(worker)})
        for number, worker in enumerate(side.workers)
    ]


def _tables(side: Side) -> Tables:
    from kvplan.plan.types import Blocks

    random = np.random.default_rng(7)
    return {group.name: Blocks(0, random.permutation(-(-TOKENS // group.tokens))) for group in side.groups}
