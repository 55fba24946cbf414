"""Memory that the processes of an engine share: one for all, nothing left behind, and errors in place of a crash."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.vllm.encoder import region
from kvplan.integrations.vllm.encoder.region import HERE, SharedRows


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(region, "SHARED", tmp_path)
    return tmp_path


def work(folder: Path, rank: int) -> None:
    region.SHARED = folder
    rows = SharedRows("engine", 4, 8, 2)
    rows.join(rank)
    rows.part(rank, 8)[:] = rank + 1
    rows.sign(rank, 7)
    rows.did(rank, HERE + 1)


def test_processes_see_each_others_rows(folder: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=work, args=(folder, rank)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    rows = SharedRows("engine", 4, 8, 2)
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
    rows.unlink()
    assert list(folder.iterdir()) == [], "however its processes end, nothing is left"
    assert rows.rows.tolist() == [1] * 8 + [2] * 8 + [0] * 16
    assert rows.signed(1, 7)
    assert not rows.signed(1, 8)
    assert not rows.signed(2, 7)
    assert rows.done(HERE + 1, range(2))
    assert not rows.done(HERE + 2, range(2))


def test_a_worker_that_does_not_share_it_is_named(folder: Path) -> None:
    SharedRows("engine", 4, 8, 3).join(1)
    with pytest.raises(ConnectorError, match=r"workers \[0, 2\]") as error:
        SharedRows("engine", 4, 8, 3).unlink()
    assert error.value.code == "I013"
    assert list(folder.iterdir()) == []


def test_processes_with_other_sizes_are_refused() -> None:
    kept = SharedRows("engine", 4, 8, 1)
    with pytest.raises(ConnectorError, match="other sizes"):
        SharedRows("engine", 8, 4, 1)
    kept.join(0)
    kept.unlink()


def test_memory_that_there_is_not_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ConnectorError, match="bytes of shared memory for items: No space left") as error:
        SharedRows("engine", 4, 8, 1)
    assert "--shm-size" in (error.value.help or "")
    assert list(folder.iterdir()) == []


def test_a_link_is_not_followed(folder: Path) -> None:
    (folder / "target").write_bytes(b"")
    rows = SharedRows("engine", 4, 8, 1)
    (path,) = [each for each in folder.iterdir() if each.name != "target"]
    path.unlink()
    path.symlink_to(folder / "target")
    with pytest.raises(ConnectorError):
        SharedRows("engine", 4, 8, 1)
    assert rows.blocks == 4
